package gpu

import "fmt"

// NoCompute is the compute instance id of an Instance that has no compute instance yet.
const NoCompute = -1

// Instance is a MIG device that exists on the hardware: a GPU instance with the compute instance
// that spans it.
type Instance struct {
	// GPU is the name of the parent (GPU.Name).
	GPU string `json:"gpu"`
	// Placement is where the GPU instance lies.
	Placement Placement `json:"placement"`
	// GI and CI are the ids that NVML gave the GPU instance and the compute instance. CI is NoCompute
	// while there is none. Ids are used again after a destroy; the UUID is not.
	GI int `json:"gi"`
	CI int `json:"ci"`
	// UUID is the MIG device's UUID; empty while there is no compute instance.
	UUID string `json:"uuid,omitempty"`
	// Multiprocessors is the number of SMs that the compute instance got.
	Multiprocessors int `json:"multiprocessors,omitempty"`
}

// String names the instance for messages.
func (i Instance) String() string {
	return fmt.Sprintf("instance gi%d/ci%d (%v) on %s", i.GI, i.CI, i.Placement, i.GPU)
}

// Verify returns an error that names the difference when the instance is not exactly what the
// profile and placement promise.
func (i Instance) Verify(profile Profile, want Placement) error {
	switch {
	case i.Placement != want:
		return fmt.Errorf("%v: placement must be %v", i, want)
	case i.CI == NoCompute || i.UUID == "":
		return fmt.Errorf("%v: has no compute instance", i)
	case i.Multiprocessors != profile.Multiprocessors:
		return fmt.Errorf("%v: has %d multiprocessors, %s promises %d", i, i.Multiprocessors, profile.Name, profile.Multiprocessors)
	}
	return nil
}
