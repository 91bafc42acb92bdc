package params

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The API version and the kinds of Tessera's own parameters.
const (
	APIVersion    = "gpu.tessera.dev/v1alpha1"
	GPUConfigKind = "GPUConfig"
	MIGConfigKind = "MIGConfig"
)

// Config is one decoded entry, with defaults and validated: a *GPUConfig, *MIGConfig, *NVIDIAGPUConfig, *NVIDIAMIGConfig or
// *NVIDIAVFIOConfig.
type Config interface {
	// kind returns the name of the kind, for messages.
	kind() string
	// serves reports whether the parameters are for devices of the shape.
	serves(gpu.Shape) bool
	// normalize sets the defaults.
	normalize()
	// requests returns what the entry requests that not every device can have.
	requests() requests
	// apply applies the entry to the settings. Tessera's kinds change the settings whose fields the entry has and keep the
	// others; NVIDIA's kinds replace all settings.
	apply(*Settings)
	// perDevice returns the memory limits by device. It is false if the entry does not change the settings of the MPS daemon, so that the limits of an
	// earlier entry stay.
	perDevice() (map[string]Memory, bool)
}

// requests are the paths of the fields that request a time slice, an MPS daemon and a memory limit; nil if an entry does not request it.
type requests struct{ timeSlice, mps, memoryLimit *field.Path }

// GPUConfig is the parameters of a whole or shared GPU.
type GPUConfig struct {
	metav1.TypeMeta `json:",inline"`
	// TimeSlicing sets the time slice of the GPU; absent keeps what an earlier entry set.
	TimeSlicing *TimeSlicing `json:"timeSlicing,omitempty"`
	// MPS runs an MPS daemon for this claim only; absent keeps what an earlier entry set.
	MPS *MPS `json:"mps,omitempty"`
	// MemoryLimit is the most to which the memory limit of a share's containers can be raised while they run; absent keeps what an earlier entry set.
	MemoryLimit *Memory `json:"memoryLimit,omitempty"`
	// Devices adds device nodes of the node to the containers. It replaces those of an earlier entry; absent keeps them. Only
	// DeviceClasses may have it.
	Devices []Extra `json:"devices,omitempty"`
}

// MIGConfig is the parameters of a MIG device.
type MIGConfig struct {
	metav1.TypeMeta `json:",inline"`
	// MPS runs an MPS daemon for this claim only; absent keeps what an earlier entry set.
	MPS *MPS `json:"mps,omitempty"`
	// Devices adds device nodes of the node to the containers. It replaces those of an earlier entry; absent keeps them. Only
	// DeviceClasses may have it.
	Devices []Extra `json:"devices,omitempty"`
}

// TimeSlicing determines how long a context runs before the next one.
type TimeSlicing struct {
	// Interval is Default, Short, Medium or Long; absent means Default.
	Interval Interval `json:"interval,omitempty"`
}

// Interval is a class of time slices of the driver. Source: nvidia-smi compute-policy --set-timeslice.
type Interval string

// The intervals. Default is the driver's own time slice.
const (
	Default Interval = "Default"
	Short   Interval = "Short"
	Medium  Interval = "Medium"
	Long    Interval = "Long"
)

// MPS has the limits of the clients of an MPS daemon.
type MPS struct {
	// ActiveThreadPercentage is the part of the multiprocessors that a client may use, 1 to 100 percent; absent means no limit.
	ActiveThreadPercentage *int `json:"activeThreadPercentage,omitempty"`
	// PinnedMemoryLimit is the device memory that a client may allocate on each device, such as 4Gi; absent means no limit.
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

func (c *GPUConfig) requests() requests {
	r := requests{mps: c.MPS.path()}
	if c.TimeSlicing != nil {
		r.timeSlice = field.NewPath("timeSlicing")
	}
	if c.MemoryLimit != nil {
		r.memoryLimit = field.NewPath("memoryLimit")
	}
	return r
}

func (c *MIGConfig) requests() requests { return requests{mps: c.MPS.path()} }

func (c *GPUConfig) perDevice() (map[string]Memory, bool) { return nil, c.MPS != nil }
func (c *MIGConfig) perDevice() (map[string]Memory, bool) { return nil, c.MPS != nil }

// path returns the path of the field mps; nil if m is nil.
func (m *MPS) path() *field.Path {
	if m == nil {
		return nil
	}
	return field.NewPath("mps")
}
