package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DaemonSetsSpec is what all operands on nodes have in common.
type DaemonSetsSpec struct {
	// Labels are added to the operands' objects and pods. They never restart a driver. None by default.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="each must be the key of a label"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tessera.dev/') && k != 'app.kubernetes.io/name')",message="labels of tessera.dev and app.kubernetes.io/name are the installer's own"
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are added to the operands' objects and pods. They never restart a driver. None by default.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="each must be the key of an annotation"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tessera.dev/'))",message="annotations of tessera.dev are the installer's own"
	Annotations map[string]string `json:"annotations,omitempty"`
	// Tolerations of the operands; by default they tolerate every taint.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// PriorityClassName of the operands, by default system-node-critical.
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
	// Root is the host's root, by default /.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Root string `json:"root,omitempty"`
	// DriverInstallDir is where a driver container shows its root, by default /run/nvidia/driver.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	DriverInstallDir string `json:"driverInstallDir,omitempty"`
	// KubeletRoot is kubelet's folder, by default /var/lib/kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	KubeletRoot string `json:"kubeletRoot,omitempty"`
	// CDI is the folder of generated CDI specs that the runtime reads, by default /var/run/cdi.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	CDI string `json:"cdi,omitempty"`
	// Proc is the folder whose proc tells of hardware, by default the host's own. Set it only where hardware is simulated.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Proc string `json:"proc,omitempty"`
	// Sys is the folder whose sys tells of hardware, by default the host's own. Set it only where hardware is simulated. The program
	// bin/kernel beside it then removes modules in the kernel's place, as bin/kernel rmmod <module>.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Sys string `json:"sys,omitempty"`
	// Dev is the folder whose dev holds device nodes, by default the host's own. Set it only where hardware is simulated.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	Dev string `json:"dev,omitempty"`
}

// DiscoverySpec says how GPU nodes are found. The scan also tells kernel, operating system and drivers of a GPU node.
type DiscoverySpec struct {
	Component `json:",inline"`
	// Source is NFD (the labels of Node Feature Discovery choose the nodes that are looked at), Scan (every Linux node's PCI
	// devices are looked at) or Auto, the default: a node that Node Feature Discovery labels is looked at when a label says so, any other is.
	// +optional
	// +kubebuilder:validation:Enum=Auto;NFD;Scan
	Source DiscoverySource `json:"source,omitempty"`
}

// DiscoverySource is who finds GPU nodes.
type DiscoverySource string

// The sources of discovery.
const (
	DiscoverAuto DiscoverySource = "Auto"
	DiscoverNFD  DiscoverySource = "NFD"
	DiscoverScan DiscoverySource = "Scan"
)

// ToolkitSpec prepares container runtimes.
type ToolkitSpec struct {
	Component `json:",inline"`
	// RuntimeClass, when set, is the name of a RuntimeClass that is made for pods that still name one, such as nvidia. It
	// selects the runtime's default handler: devices come by CDI. None by default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	RuntimeClass string `json:"runtimeClass,omitempty"`
	// ContainerdConfig is containerd's configuration file on the host, by default /etc/containerd/config.toml. Containerd 1.7
	// gets one drop-in that enables CDI beside it, and is restarted once; anything newer is left alone.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(|/|(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+)$`
	ContainerdConfig string `json:"containerdConfig,omitempty"`
}

// NodeAgentSpec is the node agent.
type NodeAgentSpec struct {
	Component `json:",inline"`
	// Config is the NodeConfig of nodes that no pool chooses.
	// +optional
	Config *NodeConfigSpec `json:"config,omitempty"`
	// Pools are other decisions for some nodes. A node that two pools choose is blocked, and says by which.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Pools []NodePool `json:"pools,omitempty"`
}

// NodePool is a group of nodes with a configuration of its own.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.config) && has(self.config.driverName) ? self.config.driverName : "") == (has(oldSelf.config) && has(oldSelf.config.driverName) ? oldSelf.config.driverName : "")`,message="a pool's config.driverName cannot be changed: claims that are prepared under the old name could never be released. Drain the nodes and give them another pool"
type NodePool struct {
	// Name names the pool's DaemonSet and ConfigMap: tessera-node-<name>.
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self != 'default' && self != 'sandbox'",message="default is the pool of the nodes that no other chooses, sandbox that of sandboxWorkloads"
	Name string `json:"name"`
	// NodeSelector chooses the nodes.
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// Config is the NodeConfig of these nodes: shapes, shares, MIG profiles offered. Absent: that of nodeAgent.config.
	// +optional
	Config *NodeConfigSpec `json:"config,omitempty"`
	// MIGMode is the MIG mode of the GPUs where changing it needs a reset (A100, A30): Enabled or Disabled. A change drains the
	// GPUs like an upgrade of the driver. Empty, the default, leaves it alone. On Hopper and newer the agent changes the mode as
	// claims need it.
	// +optional
	// +kubebuilder:validation:Enum=Enabled;Disabled
	MIGMode MIGMode `json:"migMode,omitempty"`
}

// MIGMode is a MIG mode that an administrator wants.
type MIGMode string

// The MIG modes.
const (
	MIGEnabled  MIGMode = "Enabled"
	MIGDisabled MIGMode = "Disabled"
)

// SchedulerSpec is tessera-scheduler.
type SchedulerSpec struct {
	Component `json:",inline"`
	// Mode is Additional (default) or Replace. Additional runs the scheduler next to kube-scheduler under the name tessera-scheduler, which pods set in
	// schedulerName or get from a policy. Replace also serves the name default-scheduler; stop kube-scheduler in this mode.
	// +optional
	// +kubebuilder:validation:Enum=Additional;Replace
	Mode SchedulerMode `json:"mode,omitempty"`
	// Replicas share one lease, by default 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	Replicas *int32 `json:"replicas,omitempty"`
	// Preemption lets pods of higher priority take devices from pods of lower priority. Off by default.
	// +optional
	Preemption bool `json:"preemption,omitempty"`
}

// SchedulerMode is how tessera-scheduler stands to the cluster's.
type SchedulerMode string

// The modes of the scheduler.
const (
	SchedulerAdditional SchedulerMode = "Additional"
	SchedulerReplace    SchedulerMode = "Replace"
)

// ExporterSpec is dcgm-exporter.
type ExporterSpec struct {
	Component `json:",inline"`
	// ServiceMonitor makes one for the Prometheus Operator, where its CRD is installed. Off by default.
	// +optional
	ServiceMonitor bool `json:"serviceMonitor,omitempty"`
	// Interval is how often the ServiceMonitor scrapes, by default 15s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than nothing, such as 5m"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Config is the name of a ConfigMap in the installer's namespace with the list of metrics under the key
	// dcgm-metrics.csv. Its content is hashed: a change restarts the exporters. By default the image's own list.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Config string `json:"config,omitempty"`
}

// ValidatorSpec proves that a node works, through claims as users make them.
type ValidatorSpec struct {
	Component `json:",inline"`
	// MIG also carves and releases a slice where a GPU that offers MIG is idle. On by default.
	// +optional
	MIG *bool `json:"mig,omitempty"`
	// Timeout is how long a validation may take, by default 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than nothing, such as 5m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// FeatureLabelsSpec is about the labels of nodes.
type FeatureLabelsSpec struct {
	// Enabled writes the labels. On by default.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// SandboxWorkloadsSpec hands GPUs to virtual machines.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || has(self.nodeSelector)",message="sandboxWorkloads needs a nodeSelector: the nodes that it chooses get no driver"
type SandboxWorkloadsSpec struct {
	// Enabled offers GPUs in the shape vfio on the chosen nodes. They get no driver: a GPU there belongs to vfio-pci. Off by default.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// NodeSelector chooses the nodes.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// VGPUManagerSpec is NVIDIA's vGPU host driver.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || has(self.nodeSelector)",message="vgpuManager needs a nodeSelector: the nodes that it chooses get this driver in the place of the other"
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || has(self.image)",message="vgpuManager needs an image: NVIDIA publishes none, build and name your own"
type VGPUManagerSpec struct {
	Component `json:",inline"`
	// NodeSelector chooses the nodes; they get this driver in the place of the other.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}
