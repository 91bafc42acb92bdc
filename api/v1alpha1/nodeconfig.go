package v1alpha1

import (
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The type of a NodeConfig file.
const (
	APIVersion     = "tessera.dev/v1alpha1"
	NodeConfigKind = "NodeConfig"
)

// The driver names with defined behavior.
const (
	// DriverName is the default name of the driver.
	DriverName = "gpu.tessera.dev"
	// NVIDIADriverName is the name of NVIDIA's driver: with it, claims written for that driver work
	// unchanged.
	NVIDIADriverName = "gpu.nvidia.com"
)

// NodeConfig is the configuration of one node's agent.
type NodeConfig struct {
	metav1.TypeMeta `json:",inline"`
	NodeConfigSpec  `json:",inline"`
}

// NodeConfigSpec is the configuration of the node agent on a node or a group of nodes.
type NodeConfigSpec struct {
	// Shapes are the ways in which GPUs are offered: gpu, mig, timeshare, mps and monitor; the default is all of these. Each GPU is
	// offered in every listed shape that its hardware supports; the first allocation determines its shape. The shape vfio must be the
	// only one: the node's GPUs are then for virtual machines and no driver is used. vfio cannot be combined with other shapes because
	// NVIDIA's driver does not release a GPU that a process monitors.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="!self.exists(s, s == 'vfio') || self.size() == 1",message="vfio excludes all other shapes"
	Shapes []Shape `json:"shapes,omitempty"`
	// Shares is the number of claims that share a GPU in the shapes timeshare and mps, from 1 to 1000. Default 10. A claim that
	// requests no memory gets an equal part of it.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Shares int `json:"shares,omitempty"`
	// ConsumableShares lets several claims share the devices of type gpu by time slicing, as the option of this name does in NVIDIA's driver.
	// They then replace those of the shapes timeshare and mps. memory: a claim takes the memory that it requests, all of it if it requests
	// none. unlimited: any number of claims; memory is counted for those that request it. A number from 1 to 1000: that many shares, one for
	// a claim that requests no shares; memory as with unlimited. Memory is limited as that of time shares is. The default is empty: one claim holds
	// a device of type gpu.
	// +kubebuilder:validation:Pattern=`^(memory|unlimited|1000|[1-9][0-9]{0,2})$`
	// +kubebuilder:validation:MaxLength=9
	// +optional
	ConsumableShares string `json:"consumableShares,omitempty"`
	// Sharing configures the shapes timeshare and mps.
	// +optional
	Sharing SharingSpec `json:"sharing,omitzero"`
	// Profiles are the names of the MIG profiles that are offered, such as 1g.10gb. Empty, the default, offers all.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)*)?$`
	Profiles []string `json:"profiles,omitempty"`
	// DriverName is the name of the DRA driver. Default gpu.tessera.dev.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	DriverName string `json:"driverName,omitempty"`
	// Attributes selects the attributes of MIG and shared devices: Compact (those that claims usually select by) or Full (all). The
	// default is Compact, and Full with the driver name gpu.nvidia.com, for claims that select by other attributes.
	Attributes AttributeSet `json:"attributes,omitempty"`
	// Health configures how faults of GPUs are judged.
	// +optional
	Health HealthSpec `json:"health,omitzero"`
	// Roots are the paths at which the agent finds the host's file systems.
	Roots Roots `json:"roots,omitempty"`
}

// SharingSpec configures GPUs that several claims share.
type SharingSpec struct {
	// RequireEnforcement offers only devices whose driver limits the memory of their containers to what their claims request, those with the
	// attribute memoryEnforced: hard. Off by default.
	// +optional
	RequireEnforcement bool `json:"requireEnforcement,omitempty"`
}

// Shape is a way to offer a GPU.
//
// +kubebuilder:validation:Enum=gpu;mig;timeshare;mps;monitor;vfio
type Shape string

// The shapes that a node can offer.
const (
	// ShapeGPU offers whole GPUs.
	ShapeGPU Shape = "gpu"
	// ShapeMIG offers every placement of every MIG profile.
	ShapeMIG Shape = "mig"
	// ShapeTimeShare offers GPUs that several claims share by time slicing.
	ShapeTimeShare Shape = "timeshare"
	// ShapeMPS offers GPUs that several claims share through an MPS daemon.
	ShapeMPS Shape = "mps"
	// ShapeMonitor offers every GPU, in use or not, to claims with adminAccess.
	ShapeMonitor Shape = "monitor"
	// ShapeVFIO offers whole GPUs to virtual machines, bound to vfio-pci with their IOMMU group.
	ShapeVFIO Shape = "vfio"
)

// shapes returns the shapes that a node with a driver offers by default.
func shapes() []Shape { return []Shape{ShapeGPU, ShapeMIG, ShapeTimeShare, ShapeMPS, ShapeMonitor} }

// Sandbox reports whether the node's GPUs are for virtual machines.
func (c NodeConfigSpec) Sandbox() bool { return slices.Contains(c.Shapes, ShapeVFIO) }

// AttributeSet selects the attributes that devices publish.
//
// +kubebuilder:validation:Enum=Compact;Full
type AttributeSet string

// The attribute sets.
const (
	// Compact publishes every attribute of whole GPUs, and of other devices those that claims usually select by.
	Compact AttributeSet = "Compact"
	// Full publishes every attribute of every device.
	Full AttributeSet = "Full"
)

// Roots are absolute paths in the agent's mount namespace.
type Roots struct {
	// Host is the host's root. Default /.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Host string `json:"host,omitempty"`
	// Proc is the host's /proc. Default /proc.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Proc string `json:"proc,omitempty"`
	// Sys is the host's /sys. Default /sys.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Sys string `json:"sys,omitempty"`
	// Dev is the directory whose subdirectory dev has the device nodes. If it is empty, the default, the agent uses the driver root if
	// that has a dev, and the host root otherwise.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Dev string `json:"dev,omitempty"`
	// Driver is the root of the driver installation. If it is empty, the default, the agent uses /run/nvidia/driver if a driver container
	// provides it, and the host root otherwise.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Driver string `json:"driver,omitempty"`
}

// The values of ConsumableShares that are not numbers.
const (
	ConsumableMemory    = "memory"
	ConsumableUnlimited = "unlimited"
)

// MaxShares is the largest number of shares per GPU.
const MaxShares = 1000

// Default returns the configuration in which every field has its default.
func Default() NodeConfig {
	c := preset()
	c.complete()
	return c
}

// preset returns the defaults that do not depend on other fields.
func preset() NodeConfig {
	return NodeConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: NodeConfigKind},
		NodeConfigSpec: NodeConfigSpec{
			Shapes:     shapes(),
			Shares:     10,
			DriverName: DriverName,
			Health:     HealthSpec{QuietPeriod: &metav1.Duration{Duration: gpu.DefaultQuiet}},
			Roots:      Roots{Host: "/", Proc: "/proc", Sys: "/sys"},
		},
	}
}

// complete sets the defaults that depend on other fields.
func (c *NodeConfigSpec) complete() {
	if c.Attributes != "" {
		return
	}
	c.Attributes = Compact
	if c.DriverName == NVIDIADriverName {
		c.Attributes = Full
	}
}

// Offer returns the shapes, profiles and shares that the node may offer. It fails only for an invalid configuration.
func (c NodeConfigSpec) Offer() (gpu.Offer, error) {
	offer := gpu.Offer{Profiles: c.Profiles, Shares: c.Shares, Enforced: c.Sharing.RequireEnforcement}
	if c.ConsumableShares != "" {
		offer.Shares, _ = strconv.Atoi(c.ConsumableShares) // 0, no limit, if it is not a number
	}
	for _, name := range c.Shapes {
		shape, err := gpu.ParseShape(string(name))
		if err != nil {
			return gpu.Offer{}, fmt.Errorf("read shapes: %w", err)
		}
		if c.ConsumableShares != "" && shape.Shared() {
			continue
		}
		if c.ConsumableShares != "" && shape == gpu.Whole {
			shape = gpu.TimeShare
		}
		offer.Shapes = append(offer.Shapes, shape)
	}
	return offer, nil
}
