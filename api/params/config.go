package params

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The types that can stand in an opaque configuration.
const (
	APIVersion    = "gpu.tessera.dev/v1alpha1"
	GPUConfigKind = "GPUConfig"
	MIGConfigKind = "MIGConfig"
)

// Config is one decoded entry: a *GPUConfig or a *MIGConfig, complete and valid.
type Config interface {
	// kind returns the name of the type for messages.
	kind() string
	// serves reports whether devices of the shape take these parameters.
	serves(gpu.Shape) bool
	// normalize sets the defaults.
	normalize()
	// validate returns what is wrong, nil when nothing is.
	validate() error
	// apply replaces in the settings what the entry says and leaves the rest.
	apply(*Settings)
}

// GPUConfig are the parameters of a GPU that is given as a whole or shared.
type GPUConfig struct {
	metav1.TypeMeta `json:",inline"`
	// TimeSlicing is how the containers of the GPU take turns.
	TimeSlicing *TimeSlicing `json:"timeSlicing,omitempty"`
	// MPS asks for an MPS daemon of the claim's own.
	MPS *MPS `json:"mps,omitempty"`
}

// MIGConfig are the parameters of a MIG device.
type MIGConfig struct {
	metav1.TypeMeta `json:",inline"`
	// MPS asks for an MPS daemon of the claim's own.
	MPS *MPS `json:"mps,omitempty"`
}

// TimeSlicing is how long one context runs before the next.
type TimeSlicing struct {
	// Interval is Default, Short, Medium or Long; absent means Default.
	Interval Interval `json:"interval,omitempty"`
}

// Interval is a time-slice class of the driver.
type Interval string

// The intervals.
const (
	Default Interval = "Default"
	Short   Interval = "Short"
	Medium  Interval = "Medium"
	Long    Interval = "Long"
)

// MPS limits what the clients of an MPS daemon take.
type MPS struct {
	// ActiveThreadPercentage is the part of the multiprocessors that a client may use, 1 to 100; absent
	// means no limit.
	ActiveThreadPercentage *int `json:"activeThreadPercentage,omitempty"`
	// PinnedMemoryLimit is the device memory that a client may pin, such as 4Gi; absent means no limit.
	PinnedMemoryLimit string `json:"pinnedMemoryLimit,omitempty"`
}

func (*GPUConfig) kind() string { return GPUConfigKind }
func (*MIGConfig) kind() string { return MIGConfigKind }

func (*GPUConfig) serves(s gpu.Shape) bool {
	return s == gpu.Whole || s.Shared()
}

func (*MIGConfig) serves(s gpu.Shape) bool { return s == gpu.MIG }

func (c *GPUConfig) normalize() {
	if c.TimeSlicing != nil && c.TimeSlicing.Interval == "" {
		c.TimeSlicing.Interval = Default
	}
}

func (*MIGConfig) normalize() {}
