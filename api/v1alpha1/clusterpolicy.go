package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterPolicyName is the name of the one ClusterPolicy.
const ClusterPolicyName = "default"

// ClusterPolicy is the configuration of all GPU nodes of a cluster. There is one object, named default.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=gpupolicy
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.total`
// +kubebuilder:printcolumn:name="ReadyNodes",type=integer,JSONPath=`.status.nodes.ready`
// +kubebuilder:printcolumn:name="Upgrading",type=integer,JSONPath=`.status.nodes.upgrading`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="UnhealthyGPUs",type=integer,JSONPath=`.status.gpus.unhealthy`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="the ClusterPolicy must be named default; edit the existing one"
// +kubebuilder:validation:XValidation:rule=`(has(self.spec) && has(self.spec.nodeAgent) && has(self.spec.nodeAgent.config) && has(self.spec.nodeAgent.config.driverName) ? self.spec.nodeAgent.config.driverName : "gpu.tessera.dev") == (has(oldSelf.spec) && has(oldSelf.spec.nodeAgent) && has(oldSelf.spec.nodeAgent.config) && has(oldSelf.spec.nodeAgent.config.driverName) ? oldSelf.spec.nodeAgent.config.driverName : "gpu.tessera.dev")`,message="nodeAgent.config.driverName cannot be changed: claims prepared under the old name could not be unprepared. Uninstall, or create a node pool with the new name"
type ClusterPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ClusterPolicySpec `json:"spec,omitempty"`
	// +optional
	Status ClusterPolicyStatus `json:"status,omitempty"`
}

// ClusterPolicyList is a list of ClusterPolicies.
//
// +kubebuilder:object:root=true
type ClusterPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPolicy `json:"items"`
}

// ClusterPolicySpec is the desired configuration. The administrator writes it.
type ClusterPolicySpec struct {
	// NodeSelector selects the GPU nodes that the installer manages. Empty, the default, selects all; nodes that it does not
	// select are not changed. To migrate a cluster from another stack, widen the selector one node pool at a time.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// DaemonSets is the configuration that all operands share.
	// +optional
	DaemonSets DaemonSetsSpec `json:"daemonSets,omitempty"`
	// HostPaths are the paths of the host that operands mount.
	// +optional
	HostPaths HostPathsSpec `json:"hostPaths,omitempty"`
	// Discovery configures how GPU nodes are found. On by default.
	// +optional
	Discovery DiscoverySpec `json:"discovery,omitempty"`
	// Driver is the driver of all nodes that no NVIDIADriver selects. On by default. If it is off, no driver is installed and the
	// nodes use the drivers of their hosts.
	// +optional
	Driver DriverSpec `json:"driver,omitempty"`
	// Toolkit configures the container runtime. On by default. A runtime that already reads CDI specs (containerd 2, CRI-O)
	// is not changed.
	// +optional
	Toolkit ToolkitSpec `json:"toolkit,omitempty"`
	// NodeAgent publishes the GPUs and prepares them for claims. On by default.
	// +optional
	NodeAgent NodeAgentSpec `json:"nodeAgent,omitempty"`
	// Scheduler is tessera-scheduler. On by default.
	// +optional
	Scheduler SchedulerSpec `json:"scheduler,omitempty"`
	// DCGM is a host engine per node that exporters and tools share. Off by default; the exporter then uses its embedded engine.
	// +optional
	DCGM Component `json:"dcgm,omitempty"`
	// DCGMExporter exports the metrics of every GPU. On by default.
	// +optional
	DCGMExporter ExporterSpec `json:"dcgmExporter,omitempty"`
	// Validator tests GPU nodes: every GPU computes. On by default. If it is off, a node is Ready as soon as its agent is. The node agent's
	// image tests; validator.image replaces it by your own program, which passes with exit code 0.
	// +optional
	Validator ValidatorSpec `json:"validator,omitempty"`
	// FeatureLabels writes nvidia.com/* labels that describe the GPUs to nodes, for workloads that select nodes by them.
	// +optional
	FeatureLabels FeatureLabelsSpec `json:"featureLabels,omitempty"`
	// SandboxWorkloads offers whole GPUs to virtual machines on the selected nodes. Off by default.
	// +optional
	SandboxWorkloads SandboxWorkloadsSpec `json:"sandboxWorkloads,omitempty"`
	// VGPUManager is NVIDIA's host driver for vGPU on the selected nodes. Off by default. NVIDIA publishes no image of it; build
	// your own and set image.
	// +optional
	VGPUManager VGPUManagerSpec `json:"vgpuManager,omitempty"`
	// VGPUDeviceManager is NVIDIA's program that creates the vGPU devices on the nodes with the vGPU host driver. The node label
	// nvidia.com/vgpu.config selects the configuration of a node. On by default; without vgpuManager it has no effect.
	// +optional
	VGPUDeviceManager VGPUDeviceManagerSpec `json:"vgpuDeviceManager,omitempty"`
	// Upgrade configures rollouts of a new driver to nodes that have one.
	// +optional
	Upgrade UpgradePolicy `json:"upgrade,omitempty"`
	// Remediation configures the recovery of faulted GPUs.
	// +optional
	Remediation RemediationSpec `json:"remediation,omitempty"`
	// ReadinessTaint keeps pods off a new GPU node until the node is ready: the installer adds the taint tessera.dev/not-ready:NoSchedule
	// and removes it. Off by default. With an autoscaler, create the nodes with this taint.
	// +optional
	ReadinessTaint bool `json:"readinessTaint,omitempty"`
}

// ClusterPolicyStatus is the observed state of the cluster. The installer writes it.
type ClusterPolicyStatus struct {
	// ObservedGeneration is the generation for which the status was determined.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes counts GPU nodes by phase.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`
	// GPUs counts the faulted and recovering GPUs of those nodes.
	// +optional
	GPUs GPUCounts `json:"gpus,omitempty"`
	// Plan is the effect of the current spec on nodes that are not yet changed.
	// +optional
	Plan *Plan `json:"plan,omitempty"`
	// Rollout is the progress of the driver rollout. Absent while there is none.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conditions: Ready (every selected node is Ready and every operand of the cluster is available), Progressing, Degraded,
	// RolloutPaused, and Reduced where the API server lacks kinds for some functions.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeCounts counts GPU nodes.
type NodeCounts struct {
	// Total is the number of selected GPU nodes.
	Total int32 `json:"total"`
	// Ready counts nodes in the phase Ready. Nodes in phases without a counter are being installed.
	Ready int32 `json:"ready"`
	// Upgrading counts nodes in the phase Upgrading.
	Upgrading int32 `json:"upgrading"`
	// Blocked counts nodes in the phase Blocked: an administrator or another program must act.
	Blocked int32 `json:"blocked"`
	// Failed counts nodes in the phase Failed.
	Failed int32 `json:"failed"`
}

// GPUCounts counts faulted GPUs, each once by its most severe fault. Faults are those that the agents report for the current boot of their nodes.
type GPUCounts struct {
	// Unhealthy counts GPUs with a Critical or Fatal fault.
	Unhealthy int32 `json:"unhealthy"`
	// Fatal counts GPUs with a Fatal fault. They are included in unhealthy.
	Fatal int32 `json:"fatal"`
	// Held counts GPUs that are out of service for a remediation, including those that wait for a reboot or a replacement.
	Held int32 `json:"held"`
}

// Plan is the set of changes that bring every node to the desired state.
type Plan struct {
	// Nodes is the number of nodes whose driver changes. Zero: the edit affects no node.
	Nodes int32 `json:"nodes"`
	// Pods is the number of running pods that lose their GPUs.
	Pods int32 `json:"pods"`
	// Waves are the nodes in the order in which they change, canaries first: at most 16 waves with 64 names each.
	// +optional
	// +listType=atomic
	Waves []Wave `json:"waves,omitempty"`
}

// Wave is a group of nodes that change together.
type Wave struct {
	// Count is the number of nodes of the wave.
	Count int32 `json:"count"`
	// Nodes are the names of the first 64 nodes.
	// +optional
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
}

// RolloutStatus is the progress of a driver rollout.
type RolloutStatus struct {
	// Digest identifies the revision of the driver that is being rolled out.
	Digest string `json:"digest"`
	// Stage is Canary, Soak, Waves, Paused or Done.
	// +kubebuilder:validation:Enum=Canary;Soak;Waves;Paused;Done
	Stage RolloutStage `json:"stage"`
	// Since is when the stage started.
	Since metav1.Time `json:"since"`
	// Reason describes why the rollout is in this stage.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Done counts the nodes that run the new driver.
	Done int32 `json:"done"`
	// Running counts the nodes whose driver is being changed.
	Running int32 `json:"running"`
	// Failed counts the nodes on which the change failed.
	Failed int32 `json:"failed"`
	// Waiting counts the nodes that have not started.
	Waiting int32 `json:"waiting"`
}

// RolloutStage is a stage of a rollout.
type RolloutStage string

// The stages of a rollout.
const (
	RolloutCanary RolloutStage = "Canary"
	RolloutSoak   RolloutStage = "Soak"
	RolloutWaves  RolloutStage = "Waves"
	RolloutPaused RolloutStage = "Paused"
	RolloutDone   RolloutStage = "Done"
)

// The conditions of ClusterPolicy and NVIDIADriver.
const (
	ConditionReady         = "Ready"
	ConditionProgressing   = "Progressing"
	ConditionDegraded      = "Degraded"
	ConditionRolloutPaused = "RolloutPaused"
	// ConditionReduced exists on a ClusterPolicy where the API server lacks kinds for some functions, which the message lists.
	ConditionReduced = "Reduced"
)
