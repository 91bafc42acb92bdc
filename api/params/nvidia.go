package params

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The types of NVIDIA's driver that are accepted with its name, and their strategies of sharing.
const (
	NVIDIAAPIVersion    = "resource.nvidia.com/v1beta1"
	NVIDIAGPUConfigKind = "GpuConfig"
	NVIDIAMIGConfigKind = "MigDeviceConfig"

	TimeSlicingStrategy = "TimeSlicing"
	MPSStrategy         = "MPS"
)

// NVIDIAGPUConfig are the parameters of a GPU as NVIDIA's driver reads them. Unlike Tessera's own, a
// later one takes the place of an earlier one as a whole.
type NVIDIAGPUConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Sharing is how containers share the GPU; absent sets nothing.
	Sharing *NVIDIASharing `json:"sharing,omitempty"`
}

// NVIDIAMIGConfig are the parameters of a MIG device as NVIDIA's driver reads them.
type NVIDIAMIGConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Sharing is how containers share the device; absent sets nothing.
	Sharing *NVIDIAMIGSharing `json:"sharing,omitempty"`
}

// NVIDIASharing is how the containers of a GPU share it.
type NVIDIASharing struct {
	NVIDIAMIGSharing `json:",inline"`
	// TimeSlicingConfig goes with the strategy TimeSlicing; absent means the interval Default.
	TimeSlicingConfig *TimeSlicing `json:"timeSlicingConfig,omitempty"`
}

// NVIDIAMIGSharing is how the containers of a MIG device share it. The strategy TimeSlicing is accepted
// and without effect.
type NVIDIAMIGSharing struct {
	// Strategy is TimeSlicing or MPS.
	Strategy string `json:"strategy"`
	// MPSConfig goes with the strategy MPS; absent means no limits.
	MPSConfig *NVIDIAMPS `json:"mpsConfig,omitempty"`
}

// NVIDIAMPS limits what the clients of an MPS daemon take.
type NVIDIAMPS struct {
	// ActiveThreadPercentage is the part of the multiprocessors that a client may use, 1 to 100; 0 and
	// absent mean no limit.
	ActiveThreadPercentage *int `json:"defaultActiveThreadPercentage,omitempty"`
	// PinnedMemoryLimit is the device memory that a client may pin; absent means no limit.
	PinnedMemoryLimit *Memory `json:"defaultPinnedDeviceMemoryLimit,omitempty"`
	// MultiUser changes nothing: clients of several users always run under a daemon at the same time.
	MultiUser *bool `json:"multiUser,omitempty"`
}

func (*NVIDIAGPUConfig) kind() string { return NVIDIAGPUConfigKind }
func (*NVIDIAMIGConfig) kind() string { return NVIDIAMIGConfigKind }

func (*NVIDIAGPUConfig) serves(s gpu.Shape) bool { return (*GPUConfig)(nil).serves(s) }
func (*NVIDIAMIGConfig) serves(s gpu.Shape) bool { return (*MIGConfig)(nil).serves(s) }

func (c *NVIDIAGPUConfig) normalize() {
	if c.Sharing == nil || c.Sharing.Strategy != TimeSlicingStrategy {
		return
	}
	if c.Sharing.TimeSlicingConfig == nil {
		c.Sharing.TimeSlicingConfig = &TimeSlicing{}
	}
	c.Sharing.TimeSlicingConfig.normalize()
}

func (*NVIDIAMIGConfig) normalize() {}

func (c *NVIDIAGPUConfig) wishes() (timeSlice, mps *field.Path) {
	if c.Sharing == nil {
		return nil, nil
	}
	if c.Sharing.Strategy == MPSStrategy {
		return nil, strategyPath()
	}
	return strategyPath(), nil
}

func (c *NVIDIAMIGConfig) wishes() (timeSlice, mps *field.Path) {
	if c.Sharing == nil || c.Sharing.Strategy != MPSStrategy {
		return nil, nil
	}
	return nil, strategyPath()
}

func strategyPath() *field.Path { return field.NewPath("sharing", "strategy") }

func (c *NVIDIAGPUConfig) apply(s *Settings) {
	*s = Settings{}
	if c.Sharing == nil {
		return
	}
	if t := c.Sharing.TimeSlicingConfig; t != nil {
		s.TimeSlice = string(t.Interval)
	}
	s.MPS = c.Sharing.mps()
}

func (c *NVIDIAMIGConfig) apply(s *Settings) {
	*s = Settings{}
	if c.Sharing != nil {
		s.MPS = c.Sharing.mps()
	}
}

// mps returns the settings of the claim's own daemon, the zero value for none.
func (s *NVIDIAMIGSharing) mps() MPSSettings {
	if s.Strategy != MPSStrategy {
		return MPSSettings{}
	}
	settings := MPSSettings{Private: true}
	if m := s.MPSConfig; m != nil {
		settings.limit(m.ActiveThreadPercentage, m.PinnedMemoryLimit)
	}
	return settings
}
