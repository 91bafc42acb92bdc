package params

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The kinds of NVIDIA's driver, which are accepted with its driver name, and its sharing strategies.
const (
	NVIDIAAPIVersion     = "resource.nvidia.com/v1beta1"
	NVIDIAGPUConfigKind  = "GpuConfig"
	NVIDIAMIGConfigKind  = "MigDeviceConfig"
	NVIDIAVFIOConfigKind = "VfioDeviceConfig"

	TimeSlicingStrategy = "TimeSlicing"
	MPSStrategy         = "MPS"
)

// NVIDIAGPUConfig is the parameters of a GPU in the format of NVIDIA's driver. Unlike with Tessera's kinds, a later entry
// replaces all settings of an earlier one.
type NVIDIAGPUConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Sharing determines how containers share the GPU; absent sets nothing.
	Sharing *NVIDIASharing `json:"sharing,omitempty"`
}

// NVIDIAMIGConfig is the parameters of a MIG device in the format of NVIDIA's driver.
type NVIDIAMIGConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Sharing determines how containers share the device; absent sets nothing.
	Sharing *NVIDIAMIGSharing `json:"sharing,omitempty"`
}

// NVIDIAVFIOConfig is the parameters of a GPU for a virtual machine in the format of NVIDIA's driver. It changes nothing: a container always gets the node of
// the GPU's IOMMU group and that of VFIO, which are what the format can require.
type NVIDIAVFIOConfig struct {
	metav1.TypeMeta `json:",inline"`
	// IOMMU determines how the GPU is passed.
	IOMMU *NVIDIAIOMMU `json:"iommu,omitempty"`
}

// NVIDIAIOMMU determines how a GPU is passed to a virtual machine.
type NVIDIAIOMMU struct {
	// BackendPolicy is LegacyOnly, or PreferIommuFD, which falls back to the same: Tessera passes GPUs by IOMMU group.
	BackendPolicy string `json:"backendPolicy,omitempty"`
	// EnableAPIDevice requires the node of VFIO, which a container always gets.
	EnableAPIDevice *bool `json:"enableAPIDevice,omitempty"`
}

// NVIDIASharing determines how containers share a GPU.
type NVIDIASharing struct {
	NVIDIAMIGSharing `json:",inline"`
	// TimeSlicingConfig is permitted with the strategy TimeSlicing only; absent means the interval Default.
	TimeSlicingConfig *TimeSlicing `json:"timeSlicingConfig,omitempty"`
}

// NVIDIAMIGSharing determines how containers share a MIG device. The strategy TimeSlicing is accepted and has no effect.
type NVIDIAMIGSharing struct {
	// Strategy is TimeSlicing or MPS.
	Strategy string `json:"strategy"`
	// MPSConfig is permitted with the strategy MPS only; absent means no limits.
	MPSConfig *NVIDIAMPS `json:"mpsConfig,omitempty"`
}

// NVIDIAMPS has the limits of the clients of an MPS daemon.
type NVIDIAMPS struct {
	// ActiveThreadPercentage is the part of the multiprocessors that a client may use, 1 to 100 percent; 0 and absent mean no
	// limit.
	ActiveThreadPercentage *int `json:"defaultActiveThreadPercentage,omitempty"`
	// PinnedMemoryLimit is the device memory that a client may allocate on each device; absent means no limit.
	PinnedMemoryLimit *Memory `json:"defaultPinnedDeviceMemoryLimit,omitempty"`
	// PerDevice are limits of single devices instead of PinnedMemoryLimit. The key is the position of a device among those that the entry applies to, or
	// the UUID of a GPU.
	PerDevice map[string]Memory `json:"defaultPerDevicePinnedMemoryLimit,omitempty"`
	// MultiUser has no effect: a daemon always serves clients of several users at the same time.
	MultiUser *bool `json:"multiUser,omitempty"`
}

func (*NVIDIAGPUConfig) kind() string  { return NVIDIAGPUConfigKind }
func (*NVIDIAMIGConfig) kind() string  { return NVIDIAMIGConfigKind }
func (*NVIDIAVFIOConfig) kind() string { return NVIDIAVFIOConfigKind }

func (*NVIDIAGPUConfig) serves(s gpu.Shape) bool  { return (*GPUConfig)(nil).serves(s) }
func (*NVIDIAMIGConfig) serves(s gpu.Shape) bool  { return (*MIGConfig)(nil).serves(s) }
func (*NVIDIAVFIOConfig) serves(s gpu.Shape) bool { return s == gpu.VFIO }

func (c *NVIDIAGPUConfig) normalize() {
	if c.Sharing == nil || c.Sharing.Strategy != TimeSlicingStrategy {
		return
	}
	if c.Sharing.TimeSlicingConfig == nil {
		c.Sharing.TimeSlicingConfig = &TimeSlicing{}
	}
	c.Sharing.TimeSlicingConfig.normalize()
}

func (*NVIDIAMIGConfig) normalize()  {}
func (*NVIDIAVFIOConfig) normalize() {}

func (c *NVIDIAGPUConfig) requests() requests {
	if c.Sharing == nil {
		return requests{}
	}
	if c.Sharing.Strategy == MPSStrategy {
		return requests{mps: strategyPath()}
	}
	return requests{timeSlice: strategyPath()}
}

func (c *NVIDIAMIGConfig) requests() requests {
	if c.Sharing == nil || c.Sharing.Strategy != MPSStrategy {
		return requests{}
	}
	return requests{mps: strategyPath()}
}

func (*NVIDIAVFIOConfig) requests() requests { return requests{} }

// strategyPath is the path of the field that requests both time slices and MPS daemons.
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

func (*NVIDIAVFIOConfig) apply(s *Settings) { *s = Settings{} }

func (c *NVIDIAGPUConfig) perDevice() (map[string]Memory, bool) {
	if c.Sharing == nil {
		return nil, true
	}
	return c.Sharing.perDevice(), true
}

func (c *NVIDIAMIGConfig) perDevice() (map[string]Memory, bool) {
	if c.Sharing == nil {
		return nil, true
	}
	return c.Sharing.perDevice(), true
}

func (*NVIDIAVFIOConfig) perDevice() (map[string]Memory, bool) { return nil, true }

// perDevice returns the memory limits by device; nil if there are none.
func (s *NVIDIAMIGSharing) perDevice() map[string]Memory {
	if s.MPSConfig == nil {
		return nil
	}
	return s.MPSConfig.PerDevice
}

// mps returns the settings of the claim's MPS daemon; the zero value if the strategy is not MPS.
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
