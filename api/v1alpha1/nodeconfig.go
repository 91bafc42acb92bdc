package v1alpha1

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The type of a NodeConfig file.
const (
	APIVersion     = "tessera.dev/v1alpha1"
	NodeConfigKind = "NodeConfig"
)

// The names of drivers that mean something to Tessera.
const (
	// DriverName is the driver's own name.
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

// NodeConfigSpec is what an administrator decides for a node or a group of nodes.
type NodeConfigSpec struct {
	// Shapes are the ways in which GPUs are offered: gpu, mig, timeshare, mps and monitor, all by
	// default. Each GPU is offered in all of them that its hardware allows; the first claim decides.
	// Or vfio alone: the node's GPUs are for virtual machines, and no driver is needed or used. The two
	// do not mix on a node: NVIDIA's driver does not let a GPU go that anybody watches.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="!self.exists(s, s == 'vfio') || self.size() == 1",message="vfio must stand alone"
	Shapes []Shape `json:"shapes,omitempty"`
	// Shares is how many claims one GPU serves in the shape timeshare or mps, 1 to 1000 (MaxShares), by default
	// 10. A claim that states no memory gets an equal part.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Shares int `json:"shares,omitempty"`
	// Profiles are the names of the MIG profiles that are offered, such as 1g.10gb; empty, the default,
	// offers all.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)*)?$`
	Profiles []string `json:"profiles,omitempty"`
	// DriverName is the name of the DRA driver, by default gpu.tessera.dev.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	DriverName string `json:"driverName,omitempty"`
	// Attributes is how much MIG and shared devices tell about themselves. The default is Compact, and
	// Full with the driver name gpu.nvidia.com, whose users may select by any attribute.
	Attributes AttributeSet `json:"attributes,omitempty"`
	// Health says what becomes of GPUs that are not well.
	// +optional
	Health HealthSpec `json:"health,omitzero"`
	// Roots are where the agent finds the host.
	Roots Roots `json:"roots,omitempty"`
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
	// ShapeTimeShare offers GPUs whose claims take turns.
	ShapeTimeShare Shape = "timeshare"
	// ShapeMPS offers GPUs whose claims run side by side under an MPS daemon.
	ShapeMPS Shape = "mps"
	// ShapeMonitor offers a view of every GPU to claims with adminAccess, whoever uses the GPU.
	ShapeMonitor Shape = "monitor"
	// ShapeVFIO offers whole GPUs to virtual machines, bound to vfio-pci with their IOMMU group.
	ShapeVFIO Shape = "vfio"
)

// shapes are those that a node with a driver offers by default.
func shapes() []Shape { return []Shape{ShapeGPU, ShapeMIG, ShapeTimeShare, ShapeMPS, ShapeMonitor} }

// Sandbox reports whether the node's GPUs are for virtual machines.
func (c NodeConfigSpec) Sandbox() bool { return slices.Contains(c.Shapes, ShapeVFIO) }

// AttributeSet is how much a device tells about itself.
//
// +kubebuilder:validation:Enum=Compact;Full
type AttributeSet string

// The attribute sets.
const (
	// Compact gives a whole GPU every attribute, and other devices those that a claim chooses by.
	Compact AttributeSet = "Compact"
	// Full gives every device every attribute.
	Full AttributeSet = "Full"
)

// Roots are absolute paths in the agent's mount namespace.
type Roots struct {
	// Host is the host's root, by default /.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Host string `json:"host,omitempty"`
	// Proc is the host's /proc, by default that.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Proc string `json:"proc,omitempty"`
	// Sys is the host's /sys, by default that.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Sys string `json:"sys,omitempty"`
	// Dev is the folder whose dev holds the device nodes. Empty, the default, is decided at run time:
	// the driver root where it has a dev, else the host root.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Dev string `json:"dev,omitempty"`
	// Driver is the root of the driver installation. Empty, the default, is decided at run time:
	// /run/nvidia/driver where a driver container provides one, else the host root.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Driver string `json:"driver,omitempty"`
}

// MaxShares is the largest number of shares per GPU.
const MaxShares = 1000

// Default returns the configuration of a node whose administrator decided nothing.
func Default() NodeConfig {
	c := preset()
	c.complete()
	return c
}

// preset returns the defaults that depend on nothing.
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

// Offer returns what the node may offer in the terms of the model. A valid configuration has no
// error.
func (c NodeConfigSpec) Offer() (gpu.Offer, error) {
	offer := gpu.Offer{Profiles: c.Profiles, Shares: c.Shares}
	for _, name := range c.Shapes {
		shape, err := gpu.ParseShape(string(name))
		if err != nil {
			return gpu.Offer{}, fmt.Errorf("read shapes: %w", err)
		}
		offer.Shapes = append(offer.Shapes, shape)
	}
	return offer, nil
}
