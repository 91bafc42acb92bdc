package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NVIDIADriver is the driver of some nodes of a cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=gpudriver
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=`.spec.default`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.total`
// +kubebuilder:printcolumn:name="ReadyNodes",type=integer,JSONPath=`.status.nodes.ready`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NVIDIADriver struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NVIDIADriverSpec `json:"spec,omitempty"`
	// +optional
	Status NVIDIADriverStatus `json:"status,omitempty"`
}

// NVIDIADriverList is a list of NVIDIADrivers.
//
// +kubebuilder:object:root=true
type NVIDIADriverList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NVIDIADriver `json:"items"`
}

// NVIDIADriverSpec is a driver and the nodes that get it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.default) || !self.default || !has(self.nodeSelector)",message="a default driver has no nodeSelector: it is for the nodes that no other driver chooses"
// +kubebuilder:validation:XValidation:rule="(has(self.default) && self.default) || has(self.nodeSelector)",message="set nodeSelector, or default: true"
type NVIDIADriverSpec struct {
	DriverSpec `json:",inline"`
	// NodeSelector chooses the nodes. A node that two drivers choose keeps what it has and is blocked until only one does; both say so.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Default makes this the driver of nodes that no other NVIDIADriver chooses, in the place of ClusterPolicy's. There is at
	// most one. Off by default.
	// +optional
	Default bool `json:"default,omitempty"`
	// Upgrade says how this driver comes to nodes that have one; by default as ClusterPolicy says.
	// +optional
	Upgrade *UpgradePolicy `json:"upgrade,omitempty"`
}

// NVIDIADriverStatus is what the installer says about the driver.
type NVIDIADriverStatus struct {
	// ObservedGeneration is the generation that the rest speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes counts the nodes that get this driver.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`
	// Plan is what the last edit will do to the nodes of this driver, or does.
	// +optional
	Plan *Plan `json:"plan,omitempty"`
	// Rollout is where the change of this driver stands; absent while none is under way.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conflicts names nodes that another driver chooses as well, the first 64.
	// +optional
	// +listType=set
	Conflicts []string `json:"conflicts,omitempty"`
	// Conditions: Ready, Progressing, Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DriverSpec is a driver container with NVIDIA's contract: it loads the kernel modules and shows its root below
// hostPaths.driverInstallDir.
//
// +kubebuilder:validation:XValidation:rule="!has(self.image) || self.image.contains('@') || !self.image.matches(':[^/]*$')",message="the image of a driver has no tag, it is made of version, kernel and operating system: write the tag's version into version, or name the image by digest"
// +kubebuilder:validation:XValidation:rule="!has(self.usePrecompiled) || !self.usePrecompiled || !((has(self.gds) && has(self.gds.enabled) && self.gds.enabled) || (has(self.gdrcopy) && has(self.gdrcopy.enabled) && self.gdrcopy.enabled))",message="precompiled drivers carry no sources: gds and gdrcopy need usePrecompiled: false"
type DriverSpec struct {
	// Image, in a driver, is the image's name without a tag, such as nvcr.io/nvidia/driver: the tag is made of version, kernel and
	// operating system of the node. A reference with a digest is taken as it is.
	Component `json:",inline"`
	// Version is the driver's version, such as 580.105.08; its branch, such as 580, with usePrecompiled. Empty, the default, is the
	// one that the installer was released with.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+){0,2}$`
	Version string `json:"version,omitempty"`
	// KernelModuleType is open, proprietary or auto, the default: what the driver recommends for the GPUs of the node.
	// +optional
	// +kubebuilder:validation:Enum=auto;open;proprietary
	KernelModuleType KernelModuleType `json:"kernelModuleType,omitempty"`
	// UsePrecompiled takes an image with modules that are compiled and signed for the node's kernel: its tag is
	// <version>-<kernel>-<os>. Off by default: modules are compiled on the node and the tag is <version>-<os>.
	// +optional
	UsePrecompiled bool `json:"usePrecompiled,omitempty"`
	// RDMA loads nvidia-peermem, beside the network cards' driver. Off by default.
	// +optional
	RDMA RDMASpec `json:"rdma,omitempty"`
	// GDS runs NVIDIA's file system driver (GPUDirect Storage) beside the driver. Off by default. Its device is given only to claims that ask.
	// The node's operating system is added to the tag of its image, such as -ubuntu24.04, unless the tag ends with it already.
	// +optional
	GDS Component `json:"gds,omitempty"`
	// GDRCopy runs the gdrdrv driver beside the driver. Off by default. Its device is given only to claims that ask. The operating system is
	// added to the tag of its image, too.
	// +optional
	GDRCopy Component `json:"gdrcopy,omitempty"`
	// StartupTimeout is how long the driver may take to load, compilation included, by default 25m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than nothing, such as 5m"
	StartupTimeout *metav1.Duration `json:"startupTimeout,omitempty"`
	// KernelModuleConfig is the name of a ConfigMap in the installer's namespace with parameters of the kernel modules, a key per module
	// such as nvidia.conf. Its content is hashed: a change reinstalls the driver. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	KernelModuleConfig string `json:"kernelModuleConfig,omitempty"`
	// RepoConfig is the name of a ConfigMap there with package repositories that the driver's container compiles from. Its content is hashed
	// as well. By default those of the image.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	RepoConfig string `json:"repoConfig,omitempty"`
	// CertConfig is the name of a ConfigMap there with certificates of these repositories. Its content is hashed as well. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	CertConfig string `json:"certConfig,omitempty"`
	// LicensingSecret is the name of a Secret in the installer's namespace with gridd.conf and a token, for vGPU guests. Its
	// content is hashed as well. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	LicensingSecret string `json:"licensingSecret,omitempty"`
	// SecretEnv is the name of a Secret in the installer's namespace whose keys are added to the environment. Its content is hashed as well.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SecretEnv string `json:"secretEnv,omitempty"`
	// HostDriver is Keep, the default: a node whose host has a driver of minVersion or newer keeps it and gets no
	// container; or Refuse: such a node is blocked until its own driver is removed.
	// +optional
	// +kubebuilder:validation:Enum=Keep;Refuse
	HostDriver HostDriverPolicy `json:"hostDriver,omitempty"`
	// MinVersion is the oldest driver of a host that is kept, by default 535; an older one blocks the node and is reported.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+){0,2}$`
	MinVersion string `json:"minVersion,omitempty"`
}

// RDMASpec is about GPUDirect RDMA.
type RDMASpec struct {
	Component `json:",inline"`
	// UseHostMOFED says that the network cards' driver is the host's and not a container's. Off by default.
	// +optional
	UseHostMOFED bool `json:"useHostMOFED,omitempty"`
}

// KernelModuleType is a kind of kernel modules.
type KernelModuleType string

// The kinds of kernel modules.
const (
	ModulesAuto        KernelModuleType = "auto"
	ModulesOpen        KernelModuleType = "open"
	ModulesProprietary KernelModuleType = "proprietary"
)

// HostDriverPolicy is what becomes of a driver that a host brings.
type HostDriverPolicy string

// What becomes of a host's driver.
const (
	HostDriverKeep   HostDriverPolicy = "Keep"
	HostDriverRefuse HostDriverPolicy = "Refuse"
)
