package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DaemonSetsSpec is the configuration that all operands on nodes share.
type DaemonSetsSpec struct {
	// Labels are added to the operands' objects and pods. A change does not restart drivers. None by default.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="each key must be a label key"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tessera.dev/') && k != 'app.kubernetes.io/name')",message="labels of tessera.dev and app.kubernetes.io/name are reserved for the installer"
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are added to the operands' objects and pods. A change does not restart drivers. None by default.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="each key must be an annotation key"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tessera.dev/'))",message="annotations of tessera.dev are reserved for the installer"
	Annotations map[string]string `json:"annotations,omitempty"`
	// Tolerations are the tolerations of the operands. By default they tolerate every taint.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// PriorityClassName is the priority class of the operands. Default system-node-critical.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// ImagePullSecrets are names of Secrets in the installer's namespace.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:MinLength=1
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
}

// HostPathsSpec are absolute paths on the nodes.
type HostPathsSpec struct {
	// Root is the host's root. Default /.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Root string `json:"root,omitempty"`
	// DriverInstallDir is the path at which a driver container mounts its root file system. Default /run/nvidia/driver.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	DriverInstallDir string `json:"driverInstallDir,omitempty"`
	// KubeletRoot is kubelet's root directory. Default /var/lib/kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	KubeletRoot string `json:"kubeletRoot,omitempty"`
	// CDI is the directory of generated CDI specs that the runtime reads. Default /var/run/cdi.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	CDI string `json:"cdi,omitempty"`
	// Proc is the path of the proc file system that describes the hardware. Empty, the default, selects /proc. Set it only for simulated
	// hardware.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Proc string `json:"proc,omitempty"`
	// Sys is the path of the sysfs that describes the hardware. Empty, the default, selects /sys. Set it only for simulated hardware:
	// kernel modules are then removed by the program bin/kernel of its parent directory, with the arguments rmmod <module>.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Sys string `json:"sys,omitempty"`
	// Dev is the directory whose subdirectory dev has the device nodes. Empty, the default, selects the host's root. Set it only for
	// simulated hardware.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Dev string `json:"dev,omitempty"`
}

// DiscoverySpec configures how GPU nodes are found. The scan of a GPU node also reports its kernel, operating system and drivers.
type DiscoverySpec struct {
	Component `json:",inline"`
	// Source selects the nodes whose PCI devices are scanned: NFD (nodes that Node Feature Discovery labels as GPU nodes), Scan (every
	// Linux node) or Auto. The default Auto also scans nodes that have no labels of Node Feature Discovery.
	// +optional
	// +kubebuilder:validation:Enum=Auto;NFD;Scan
	Source DiscoverySource `json:"source,omitempty"`
}

// DiscoverySource is a method of finding GPU nodes.
type DiscoverySource string

// The sources of discovery.
const (
	DiscoverAuto DiscoverySource = "Auto"
	DiscoverNFD  DiscoverySource = "NFD"
	DiscoverScan DiscoverySource = "Scan"
)

// ToolkitSpec configures container runtimes.
type ToolkitSpec struct {
	Component `json:",inline"`
	// RuntimeClass is the name of a RuntimeClass to create, such as nvidia, for existing pods that set runtimeClassName. It has the
	// handler runc, or crun if a GPU node lacks runc; devices are injected by CDI. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	RuntimeClass string `json:"runtimeClass,omitempty"`
	// ContainerdConfig is the path of containerd's configuration file on the host. Default /etc/containerd/config.toml. For containerd 1.7
	// the installer writes one drop-in file that enables CDI and restarts containerd once. Newer versions are not changed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	ContainerdConfig string `json:"containerdConfig,omitempty"`
}

// NodeAgentSpec configures the node agent.
type NodeAgentSpec struct {
	Component `json:",inline"`
	// Config is the NodeConfig of nodes that no pool selects.
	// +optional
	Config *NodeConfigSpec `json:"config,omitempty"`
	// Pools are groups of nodes with a different configuration. A node that two pools select is Blocked; its message lists the pools.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Pools []NodePool `json:"pools,omitempty"`
}

// NodePool is a group of nodes with a separate configuration.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.config) && has(self.config.driverName) ? self.config.driverName : "") == (has(oldSelf.config) && has(oldSelf.config.driverName) ? oldSelf.config.driverName : "")`,message="a pool's config.driverName cannot be changed: claims prepared under the old name could not be unprepared. Drain the nodes and assign them to another pool"
type NodePool struct {
	// Name is the name of the pool. Its DaemonSet and ConfigMap are named tessera-node-<name>.
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self != 'default' && self != 'sandbox'",message="default and sandbox are reserved: default is the pool of nodes that no other pool selects, sandbox that of sandboxWorkloads"
	Name string `json:"name"`
	// NodeSelector selects the nodes of the pool.
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// Config is the NodeConfig of these nodes: shapes, shares, offered MIG profiles. Absent: nodeAgent.config.
	// +optional
	Config *NodeConfigSpec `json:"config,omitempty"`
	// MIGMode is the MIG mode, Enabled or Disabled, of GPUs that must be reset to change it (A100, A30). A change drains the GPUs like a
	// driver upgrade. Empty, the default, does not change the mode. On Hopper and newer the agent changes the mode as claims require.
	// +optional
	// +kubebuilder:validation:Enum=Enabled;Disabled
	MIGMode MIGMode `json:"migMode,omitempty"`
}

// MIGMode is a desired MIG mode.
type MIGMode string

// The MIG modes.
const (
	MIGEnabled  MIGMode = "Enabled"
	MIGDisabled MIGMode = "Disabled"
)

// SchedulerSpec configures tessera-scheduler.
type SchedulerSpec struct {
	Component `json:",inline"`
	// Mode is Additional or Replace. The default Additional runs the scheduler in addition to kube-scheduler, for pods whose schedulerName is
	// tessera-scheduler; while it is available, an admission policy sets it for new pods with devices. Replace also schedules the pods of
	// default-scheduler: stop kube-scheduler first.
	// +optional
	// +kubebuilder:validation:Enum=Additional;Replace
	Mode SchedulerMode `json:"mode,omitempty"`
	// Replicas is the number of replicas, one of which is the leader. Default 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	Replicas *int32 `json:"replicas,omitempty"`
	// Preemption evicts pods of lower priority whose devices a pod of higher priority requires. Off by default.
	// +optional
	Preemption bool `json:"preemption,omitempty"`
}

// SchedulerMode is the relation of tessera-scheduler to kube-scheduler.
type SchedulerMode string

// The modes of the scheduler.
const (
	SchedulerAdditional SchedulerMode = "Additional"
	SchedulerReplace    SchedulerMode = "Replace"
)

// ExporterSpec configures dcgm-exporter.
type ExporterSpec struct {
	Component `json:",inline"`
	// ServiceMonitor creates a ServiceMonitor for the Prometheus Operator if its CRD is installed. Off by default.
	// +optional
	ServiceMonitor bool `json:"serviceMonitor,omitempty"`
	// Interval is the scrape interval of the ServiceMonitor. Default 15s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be greater than 0s, such as 5m"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Config is the name of a ConfigMap in the installer's namespace with the list of metrics in the key dcgm-metrics.csv. A change of
	// its content restarts the exporters. The default is the image's list.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Config string `json:"config,omitempty"`
}

// ValidatorSpec configures the validation of nodes. It allocates GPUs with ResourceClaims, as workloads do, and computes on every GPU and MIG
// device of the node with the node agent's image. An image here replaces it: its entrypoint runs in a container with all GPUs of the node, and
// the node passes if it exits with code 0.
type ValidatorSpec struct {
	Component `json:",inline"`
	// MIG also creates and destroys a MIG device on an idle GPU that offers MIG. On by default.
	// +optional
	MIG *bool `json:"mig,omitempty"`
	// Timeout is how long a validation may take. Default 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be greater than 0s, such as 5m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// FeatureLabelsSpec configures the labels that describe GPUs on nodes.
type FeatureLabelsSpec struct {
	// Enabled writes the labels. On by default.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// SandboxWorkloadsSpec configures GPUs for virtual machines.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || has(self.nodeSelector)",message="sandboxWorkloads requires a nodeSelector: the selected nodes get no driver"
type SandboxWorkloadsSpec struct {
	// Enabled offers GPUs in the shape vfio on the selected nodes. These nodes get no NVIDIA driver; vfio-pci binds the GPUs. Off by
	// default.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// NodeSelector selects the nodes.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// VGPUManagerSpec configures NVIDIA's vGPU host driver.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || has(self.nodeSelector)",message="vgpuManager requires a nodeSelector: the selected nodes get this driver instead of spec.driver"
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || has(self.image)",message="vgpuManager requires an image: NVIDIA publishes none; build one and set its name"
type VGPUManagerSpec struct {
	Component `json:",inline"`
	// NodeSelector selects the nodes. They get this driver instead of spec.driver, and neither node agent nor validation nor toolkit: the
	// host driver has no CUDA.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// VGPUDeviceManagerSpec configures NVIDIA's vGPU device manager.
type VGPUDeviceManagerSpec struct {
	Component `json:",inline"`
	// Config has the configurations among which nodes choose.
	// +optional
	Config VGPUConfigSpec `json:"config,omitempty"`
}

// VGPUConfigSpec names the configurations of vGPU devices.
type VGPUConfigSpec struct {
	// Name is the name of a ConfigMap in the installer's namespace with the configurations in the key config.yaml, in the format of NVIDIA's
	// vGPU device manager. A change of its content is applied. Empty, the default, selects one of the installer with the content of the
	// GPU Operator's: a configuration per vGPU type, named after the type, and the configuration default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`
	// Default is the configuration of nodes without the label nvidia.com/vgpu.config. Default default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Default string `json:"default,omitempty"`
}
