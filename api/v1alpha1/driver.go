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
// +kubebuilder:validation:XValidation:rule="!has(self.default) || !self.default || !has(self.nodeSelector)",message="a default driver has no nodeSelector: it applies to the nodes that no other driver selects"
// +kubebuilder:validation:XValidation:rule="(has(self.default) && self.default) || has(self.nodeSelector)",message="set nodeSelector, or default: true"
type NVIDIADriverSpec struct {
	DriverSpec `json:",inline"`
	// NodeSelector selects the nodes. A node that two drivers select keeps its current driver and is Blocked until only one selects it;
	// both list it in status.conflicts.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Default makes this the driver of nodes that no other NVIDIADriver selects, instead of spec.driver of the ClusterPolicy. At most
	// one NVIDIADriver is the default. Off by default.
	// +optional
	Default bool `json:"default,omitempty"`
	// Upgrade configures the rollout of this driver to nodes that have one. The default is spec.upgrade of the ClusterPolicy.
	// +optional
	Upgrade *UpgradePolicy `json:"upgrade,omitempty"`
}

// NVIDIADriverStatus is the observed state of the driver. The installer writes it.
type NVIDIADriverStatus struct {
	// ObservedGeneration is the generation for which the status was determined.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes counts the nodes that get this driver.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`
	// Plan is the effect of the current spec on nodes that are not yet changed.
	// +optional
	Plan *Plan `json:"plan,omitempty"`
	// Rollout is the progress of the rollout of this driver. Absent while there is none.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conflicts are the names of the first 64 nodes that another driver selects as well.
	// +optional
	// +listType=set
	Conflicts []string `json:"conflicts,omitempty"`
	// Conditions: Ready, Progressing, Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DriverSpec is a driver container with NVIDIA's contract: it loads the kernel modules and mounts its root file system at
// hostPaths.driverInstallDir.
//
// +kubebuilder:validation:XValidation:rule="!has(self.image) || self.image.contains('@') || !self.image.matches(':[^/]*$')",message="the image of a driver must not have a tag, which is derived from version, kernel and operating system; set version, or reference the image by digest"
// +kubebuilder:validation:XValidation:rule="!has(self.usePrecompiled) || !self.usePrecompiled || !((has(self.gds) && has(self.gds.enabled) && self.gds.enabled) || (has(self.gdrcopy) && has(self.gdrcopy.enabled) && self.gdrcopy.enabled))",message="gds and gdrcopy require usePrecompiled: false, because precompiled drivers have no sources"
// +kubebuilder:validation:XValidation:rule="!has(self.usePrecompiled) || !self.usePrecompiled || !has(self.version) || !self.version.endsWith('-grid')",message="drivers of vGPU guests (version -grid) require usePrecompiled: false, because NVIDIA builds no precompiled ones"
type DriverSpec struct {
	// Image of a driver is the image's name without a tag, such as nvcr.io/nvidia/driver. The installer builds the tag from the version
	// and from the kernel and the operating system of the node. A reference with a digest is used unchanged.
	Component `json:",inline"`
	// Version is the driver's version, such as 595.91.07, or its branch, such as 595, with usePrecompiled. Empty, the default, selects
	// the version of the installer's release. The driver of a vGPU guest has the suffix -grid, such as 550.127.05-grid, and needs an image of
	// your own.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+){0,2}(-grid)?$`
	Version string `json:"version,omitempty"`
	// KernelModuleType is open, proprietary or auto. The default auto selects the type that the driver recommends for the GPUs of the node.
	// +optional
	// +kubebuilder:validation:Enum=auto;open;proprietary
	KernelModuleType KernelModuleType `json:"kernelModuleType,omitempty"`
	// UsePrecompiled uses an image with modules that are compiled and signed for the node's kernel; its tag is
	// <version>-<kernel>-<os>. Off by default: modules are compiled on the node and the tag is <version>-<os>.
	// +optional
	UsePrecompiled bool `json:"usePrecompiled,omitempty"`
	// RDMA loads the module nvidia-peermem for GPUDirect RDMA on nodes with Mellanox network adapters. There the driver waits for that of the
	// adapters. Off by default.
	// +optional
	RDMA RDMASpec `json:"rdma,omitempty"`
	// GDS runs NVIDIA's file system driver (GPUDirect Storage) in the driver pod. Off by default. Only claims whose DeviceClass has it get its device.
	// The installer appends the node's operating system to the tag of the image, such as -ubuntu24.04, unless the tag ends with it.
	// +optional
	GDS Component `json:"gds,omitempty"`
	// GDRCopy runs the gdrdrv driver in the driver pod. Off by default. Only claims whose DeviceClass has it get its device. The installer appends
	// the node's operating system to the tag of the image as for gds.
	// +optional
	GDRCopy Component `json:"gdrcopy,omitempty"`
	// StartupTimeout is how long the driver may take to load, including compilation. Default 25m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be greater than 0s, such as 5m"
	StartupTimeout *metav1.Duration `json:"startupTimeout,omitempty"`
	// KernelModuleConfig is the name of a ConfigMap in the installer's namespace with parameters of the kernel modules: one key per module,
	// such as nvidia.conf. A change of its content reinstalls the driver. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	KernelModuleConfig string `json:"kernelModuleConfig,omitempty"`
	// RepoConfig is the name of a ConfigMap in the installer's namespace with the package repositories that the driver container installs
	// packages from. A change of its content reinstalls the driver. The default is the image's repositories.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	RepoConfig string `json:"repoConfig,omitempty"`
	// CertConfig is the name of a ConfigMap in the installer's namespace with certificates of these repositories. A change of its content
	// reinstalls the driver. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	CertConfig string `json:"certConfig,omitempty"`
	// LicensingSecret is the name of a Secret in the installer's namespace with gridd.conf and a token, for vGPU guests. A change of
	// its content reinstalls the driver. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	LicensingSecret string `json:"licensingSecret,omitempty"`
	// SecretEnv is the name of a Secret in the installer's namespace whose keys are added to the driver container's environment. A change
	// of its content reinstalls the driver.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SecretEnv string `json:"secretEnv,omitempty"`
	// HostDriver is Keep or Refuse. With the default Keep, a node whose host has a driver of minVersion or newer keeps that driver and gets
	// no driver container. With Refuse, a node whose host has a driver is Blocked until that driver is removed.
	// +optional
	// +kubebuilder:validation:Enum=Keep;Refuse
	HostDriver HostDriverPolicy `json:"hostDriver,omitempty"`
	// MinVersion is the oldest host driver that is kept. Default 535. A node with an older host driver is Blocked. If enabled is false, the
	// loaded driver counts.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+){0,2}$`
	MinVersion string `json:"minVersion,omitempty"`
}

// RDMASpec configures GPUDirect RDMA.
type RDMASpec struct {
	Component `json:",inline"`
	// UseHostMOFED uses the network adapters' driver (MOFED) of the host instead of that of a container. Off by default.
	// +optional
	UseHostMOFED bool `json:"useHostMOFED,omitempty"`
}

// KernelModuleType is a type of kernel modules.
type KernelModuleType string

// The types of kernel modules.
const (
	ModulesAuto        KernelModuleType = "auto"
	ModulesOpen        KernelModuleType = "open"
	ModulesProprietary KernelModuleType = "proprietary"
)

// HostDriverPolicy is the handling of drivers that are installed on hosts.
type HostDriverPolicy string

// The policies for host drivers.
const (
	HostDriverKeep   HostDriverPolicy = "Keep"
	HostDriverRefuse HostDriverPolicy = "Refuse"
)
