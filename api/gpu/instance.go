package gpu

import "fmt"

// NoCompute is Instance.CI of a GPU instance that has no compute instance yet.
const NoCompute = -1

// Instance is a MIG device that exists on the hardware: a GPU instance with the one compute instance that spans it.
type Instance struct {
	// GPU is the name of the parent GPU (GPU.Name).
	GPU string `json:"gpu"`
	// Placement is the profile and position of the GPU instance.
	Placement Placement `json:"placement"`
	// GI and CI are NVML's ids of the GPU instance and of the compute instance. CI is NoCompute while there is no compute
	// instance. The driver uses them again after an instance is destroyed.
	GI int `json:"gi"`
	CI int `json:"ci"`
	// UUID is the UUID of the MIG device; empty while there is no compute instance. The driver derives it from the GPU and the
	// place, so that an instance at the same place has the same one again (open-gpu-kernel-modules, gpu_uuid.c).
	UUID string `json:"uuid,omitempty"`
	// Multiprocessors is the number of SMs of the compute instance.
	Multiprocessors int `json:"multiprocessors,omitempty"`
}

// String returns the instance's name in messages.
func (i Instance) String() string {
	return fmt.Sprintf("instance gi%d/ci%d (%v) on %s", i.GI, i.CI, i.Placement, i.GPU)
}

// Verify returns an error that names the difference if the instance does not have exactly the placement and the multiprocessors
// of the profile. The driver can create a compute instance with fewer SMs than the profile has.
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
