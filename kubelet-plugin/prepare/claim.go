package prepare

import (
	"fmt"
	"regexp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
)

// Claim is an allocated ResourceClaim: its identity and its devices of this driver.
type Claim struct {
	Ref
	Wanted []Wanted
}

// Ref is the identity of a claim. The UID is the key of records, specs and locks.
type Ref struct {
	UID       string
	Namespace string
	Name      string
}

// String returns namespace/name for messages.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// uid matches UIDs that are safe as part of a file name.
var uid = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func (r Ref) validate() error {
	if !uid.MatchString(r.UID) {
		return fmt.Errorf("UID %q: must be letters, digits and dashes", r.UID)
	}
	return nil
}

// Result identifies one allocation result for kubelet, the record, the CDI device and the claim's status.
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
	// Use is the use of a GPU that the device's name stands for on this node.
	Use gpu.Device
	// Admin marks a result with adminAccess: nothing is created, destroyed or counted for it.
	Admin bool
	// Settings are the parameters in effect.
	Settings Settings
	// Interval is the time slice in effect for the device, decided when it is prepared; empty if no claim requested one. It differs from the
	// Settings if an earlier claim of the GPU requested another one.
	Interval string
	// MemoryLimit is what each of the device's containers can allocate, if it was changed while the claim was prepared; 0 means what the claim requests.
	MemoryLimit uint64
	// DaemonByLimit is set for a device of a record of a release in which one MPS daemon of a claim served only GPUs with the same memory limit: the claim
	// keeps its daemons, because its containers are their clients.
	DaemonByLimit bool
}

// validate returns an error if the agent can never prepare such a device, regardless of the node's state.
func (w Wanted) validate() error {
	shape := w.Use.Shape
	switch shape {
	case gpu.Whole, gpu.MIG, gpu.TimeShare:
	case gpu.MPS:
		if w.Admin {
			return fmt.Errorf("device %s: admin access is not possible through an MPS daemon: request a monitor device: %w", w.Device, gpu.ErrUnsupported)
		}
	case gpu.Monitor:
		if !w.Admin {
			return fmt.Errorf("device %s: a monitor device needs adminAccess: %w", w.Device, gpu.ErrUnsupported)
		}
	case gpu.VFIO:
		if w.Admin {
			return fmt.Errorf("device %s: a GPU for a virtual machine cannot be shared with adminAccess: %w", w.Device, gpu.ErrUnsupported)
		}
		if len(w.Settings.Extras.List()) > 0 {
			return fmt.Errorf("device %s: a virtual machine cannot use devices of the host's driver: %w", w.Device, gpu.ErrUnsupported)
		}
	case gpu.None:
		return fmt.Errorf("device %s: this agent does not prepare GPUs as %v: %w", w.Device, shape, gpu.ErrUnsupported)
	}
	return w.validateSettings()
}

// validateSettings returns an error for parameters that a device of this shape does not have.
func (w Wanted) validateSettings() error {
	shape := w.Use.Shape
	if w.Settings.TimeSlice != "" && shape != gpu.Whole && shape != gpu.TimeShare {
		return fmt.Errorf("device %s: a device of type %v has no time slices: %w", w.Device, shape, gpu.ErrUnsupported)
	}
	if w.Settings.MPS.Private && shape != gpu.Whole && shape != gpu.MIG {
		return fmt.Errorf("device %s: a device of type %v does not support an MPS daemon for one claim: %w", w.Device, shape, gpu.ErrUnsupported)
	}
	return nil
}

// touches reports whether preparing the device reads or changes its GPU. Admin access to a whole GPU does neither.
func (w Wanted) touches() bool { return !w.Admin || w.Use.Shape == gpu.MIG }

// validate returns an error if the claim can never be prepared, regardless of the node's state.
func (c Claim) validate() error {
	if err := c.Ref.validate(); err != nil {
		return err
	}
	if len(c.Wanted) == 0 {
		return fmt.Errorf("no device of this driver is allocated to it")
	}
	seen := map[Result]bool{}
	for _, w := range c.Wanted {
		if err := w.validate(); err != nil {
			return err
		}
		if seen[w.Result] {
			return fmt.Errorf("device %s of pool %s: allocated twice to request %s", w.Device, w.Pool, w.Request)
		}
		seen[w.Result] = true
	}
	return nil
}

// Settings are the parameters of one device after precedence, defaults and validation.
type Settings = params.Settings

// Prepared is one prepared device, the input of the CDI spec and of the answer to kubelet.
type Prepared struct {
	Result
	Use   gpu.Device
	Admin bool
	// GPU is a snapshot of the GPU without its MIG devices.
	GPU gpu.GPU
	// Instance is the live MIG device; nil for every other shape.
	Instance *gpu.Instance
	// Watched are the MIG devices that existed when a monitor was prepared; nil for every other shape.
	Watched []gpu.Instance
	// IOMMUGroup is the number of the group that a virtual machine gets; empty for every other shape.
	IOMMUGroup string
	// Settings are the requested parameters, Interval the time slice in effect, empty if no claim requested one.
	Settings Settings
	Interval string
	// Daemon is the MPS daemon that serves the device; nil without one.
	Daemon *Client
}

// Client is how a device's containers use an MPS daemon.
type Client struct {
	// Name is the daemon's, Folders are how it is reached.
	Name    string
	Folders DaemonFolders
	// ActiveThreadPercentage and PinnedMemoryBytes are the limits of this claim's containers; 0 is none.
	// They are at most those of the daemon.
	ActiveThreadPercentage int
	PinnedMemoryBytes      int64
}

// Answer is one prepared device together with what kubelet hands to the container runtime.
type Answer struct {
	Prepared
	// CDIDevices are the fully qualified CDI ids, the claim's own device first.
	CDIDevices []string
}
