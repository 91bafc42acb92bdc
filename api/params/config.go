package params

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Tessera's own types.
const (
	APIVersion    = "gpu.tessera.dev/v1alpha1"
	GPUConfigKind = "GPUConfig"
	MIGConfigKind = "MIGConfig"
)

// Config is one decoded entry, complete and valid: a *GPUConfig, *MIGConfig, *NVIDIAGPUConfig or
// *NVIDIAMIGConfig.
type Config interface {
	// kind returns the name of the type for messages.
	kind() string
	// serves reports whether devices of the shape take these parameters.
	serves(gpu.Shape) bool
	// normalize sets the defaults.
	normalize()
	// wishes returns where the entry asks for a time slice and for an MPS daemon, nil where it does not.
	wishes() (timeSlice, mps *field.Path)
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
	// Devices are device nodes of the node that the containers get as well; absent leaves what is set.
	Devices []Extra `json:"devices,omitempty"`
}

// MIGConfig are the parameters of a MIG device.
type MIGConfig struct {
	metav1.TypeMeta `json:",inline"`
	// MPS asks for an MPS daemon of the claim's own.
	MPS *MPS `json:"mps,omitempty"`
	// Devices are device nodes of the node that the containers get as well; absent leaves what is set.
	Devices []Extra `json:"devices,omitempty"`
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
	PinnedMemoryLimit *Memory `json:"pinnedMemoryLimit,omitempty"`
}

func (*GPUConfig) kind() string { return GPUConfigKind }
func (*MIGConfig) kind() string { return MIGConfigKind }

func (*GPUConfig) serves(s gpu.Shape) bool { return s == gpu.Whole || s.Shared() }
func (*MIGConfig) serves(s gpu.Shape) bool { return s == gpu.MIG }

func (c *GPUConfig) normalize() { c.TimeSlicing.normalize() }
func (*MIGConfig) normalize()   {}

func (t *TimeSlicing) normalize() {
	if t != nil && t.Interval == "" {
		t.Interval = Default
	}
}

func (c *GPUConfig) wishes() (timeSlice, mps *field.Path) {
	if c.TimeSlicing != nil {
		timeSlice = field.NewPath("timeSlicing")
	}
	return timeSlice, c.MPS.wish()
}

func (c *MIGConfig) wishes() (timeSlice, mps *field.Path) { return nil, c.MPS.wish() }

func (m *MPS) wish() *field.Path {
	if m == nil {
		return nil
	}
	return field.NewPath("mps")
}
