package prepare

import "github.com/tessera-gpu/tessera/api/gpu"

// Claim is an allocated ResourceClaim as far as this driver is concerned: its identity and the
// devices of ours that were allocated to it.
type Claim struct {
	Ref
	Wanted []Wanted
}

// Ref is the identity of a claim. The UID is the key of everything that is kept for it.
type Ref struct {
	UID       string
	Namespace string
	Name      string
}

// String returns namespace/name for messages.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Result identifies one allocation result: what kubelet, the record, the CDI device and the claim's
// status agree on.
type Result struct {
	// Request is the name in the claim, "request" or "request/subrequest".
	Request string
	Pool    string
	Device  string
	// ShareID is set for devices that allow several allocations.
	ShareID string
}

// Wanted is one allocated device with everything that decides how it is prepared.
type Wanted struct {
	Result
	// Use is what the device stands for on this node.
	Use gpu.Device
	// Admin marks a result with adminAccess: nothing is created, destroyed or counted for it.
	Admin bool
	// Settings are the parameters in effect.
	Settings Settings
}

// Settings are the parameters of one device after precedence, defaults and validation.
type Settings struct {
	// TimeSlice is the wished time-slice class; empty leaves the GPU as it is.
	TimeSlice string
}

// Prepared is one device as it was made ready: what the CDI spec and the answer to kubelet are made
// from.
type Prepared struct {
	Result
	Use   gpu.Device
	Admin bool
	// GPU is a snapshot of the parent without its instances.
	GPU gpu.GPU
	// Instance is the live MIG device; nil for every other shape.
	Instance *gpu.Instance
}

// Answer is one prepared device together with what kubelet hands to the container runtime.
type Answer struct {
	Prepared
	// CDIDevices are the fully qualified CDI ids, the claim's own device first.
	CDIDevices []string
}
