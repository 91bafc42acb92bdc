package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterPolicyName is the name of the one ClusterPolicy.
const ClusterPolicyName = "default"

// ClusterPolicy is what an administrator decides for all GPU nodes of a cluster. There is one, named default.
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
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="there is one ClusterPolicy and its name is default: edit that one"
// +kubebuilder:validation:XValidation:rule=`(has(self.spec) && has(self.spec.nodeAgent) && has(self.spec.nodeAgent.config) && has(self.spec.nodeAgent.config.driverName) ? self.spec.nodeAgent.config.driverName : "gpu.tessera.dev") == (has(oldSelf.spec) && has(oldSelf.spec.nodeAgent) && has(oldSelf.spec.nodeAgent.config) && has(oldSelf.spec.nodeAgent.config.driverName) ? oldSelf.spec.nodeAgent.config.driverName : "gpu.tessera.dev")`,message="nodeAgent.config.driverName cannot be changed: claims that are prepared under the old name could never be released. Uninstall, or make a node pool with the new name"
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

// ClusterPolicySpec is the administrator's decision.
type ClusterPolicySpec struct {
	// NodeSelector chooses the GPU nodes that the installer works on. Empty, the default, chooses all; nodes it does not
	// choose are left as they are. Widening it pool by pool moves a cluster from another stack.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// DaemonSets is what all operands have in common.
	// +optional
	DaemonSets DaemonSetsSpec `json:"daemonSets,omitempty"`
	// HostPaths are where the host keeps what operands mount.
	// +optional
	HostPaths HostPathsSpec `json:"hostPaths,omitempty"`
	// Discovery says how GPU nodes are found. On by default.
	// +optional
	Discovery DiscoverySpec `json:"discovery,omitempty"`
	// Driver is the driver of all nodes that no NVIDIADriver chooses. On by default; off, the hosts' drivers are
	// used and none is installed.
	// +optional
	Driver DriverSpec `json:"driver,omitempty"`
	// Toolkit prepares the container runtime. On by default; where the runtime reads CDI specs already
	// (containerd 2, CRI-O) it changes nothing.
	// +optional
	Toolkit ToolkitSpec `json:"toolkit,omitempty"`
	// NodeAgent publishes and prepares the GPUs. On by default.
	// +optional
	NodeAgent NodeAgentSpec `json:"nodeAgent,omitempty"`
	// Scheduler is tessera-scheduler. On by default.
	// +optional
	Scheduler SchedulerSpec `json:"scheduler,omitempty"`
	// DCGM is a host engine per node that exporters and tools share. Off by default; without it the exporter has its own.
	// +optional
	DCGM Component `json:"dcgm,omitempty"`
	// DCGMExporter serves the metrics of every GPU. On by default.
	// +optional
	DCGMExporter ExporterSpec `json:"dcgmExporter,omitempty"`
	// Validator proves that a node works. On by default; off, a node is Ready with its agent.
	// +optional
	Validator ValidatorSpec `json:"validator,omitempty"`
	// FeatureLabels writes nvidia.com/* labels of what the GPUs are on nodes, for those who still select by them.
	// +optional
	FeatureLabels FeatureLabelsSpec `json:"featureLabels,omitempty"`
	// SandboxWorkloads hands whole GPUs to virtual machines on chosen nodes. Off by default.
	// +optional
	SandboxWorkloads SandboxWorkloadsSpec `json:"sandboxWorkloads,omitempty"`
	// VGPUManager is NVIDIA's host driver for vGPU, on the nodes it selects. Off by default. Its image is the
	// customer's own: NVIDIA publishes none.
	// +optional
	VGPUManager VGPUManagerSpec `json:"vgpuManager,omitempty"`
	// Upgrade says how a new driver comes to nodes that have one.
	// +optional
	Upgrade UpgradePolicy `json:"upgrade,omitempty"`
	// Remediation says what is done about GPUs that are not well.
	// +optional
	Remediation RemediationSpec `json:"remediation,omitempty"`
	// ReadinessTaint keeps pods off a GPU node until it is ready, for autoscalers: nodes then carry the taint
	// tessera.dev/not-ready:NoSchedule, which the installer removes. Off by default: pods without GPUs need not wait.
	// +optional
	ReadinessTaint bool `json:"readinessTaint,omitempty"`
}

// ClusterPolicyStatus is what the installer says about the cluster.
type ClusterPolicyStatus struct {
	// ObservedGeneration is the generation that the rest speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes counts GPU nodes by where they stand.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`
	// GPUs counts the GPUs of those nodes that are not well, or are being brought back.
	// +optional
	GPUs GPUCounts `json:"gpus,omitempty"`
	// Plan is what the last edit will do to nodes, or does.
	// +optional
	Plan *Plan `json:"plan,omitempty"`
	// Rollout is where the change of drivers stands; absent while none is under way.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conditions: Ready (every chosen node is Ready and every operand of the cluster is available), Progressing, Degraded,
	// RolloutPaused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeCounts counts GPU nodes.
type NodeCounts struct {
	// Total is the number of GPU nodes that the policy chooses.
	Total int32 `json:"total"`
	// Ready counts those in the phase Ready; what is counted nowhere is on its way.
	Ready int32 `json:"ready"`
	// Upgrading counts those in the phase Upgrading.
	Upgrading int32 `json:"upgrading"`
	// Blocked counts those in the phase Blocked: somebody else must act.
	Blocked int32 `json:"blocked"`
	// Failed counts those in the phase Failed.
	Failed int32 `json:"failed"`
}

// GPUCounts counts GPUs that are not well, each once by its worst fault, as their agents say in the present boot of their nodes.
type GPUCounts struct {
	// Unhealthy counts those with a fault that is Critical or Fatal.
	Unhealthy int32 `json:"unhealthy"`
	// Fatal counts those of them with a fault that is Fatal.
	Fatal int32 `json:"fatal"`
	// Held counts GPUs that are taken out of service for a remedy, those included that wait for a reboot or a person.
	Held int32 `json:"held"`
}

// Plan is what it takes to bring every node to what is desired.
type Plan struct {
	// Nodes is how many nodes change their driver. Zero: the edit touches nobody.
	Nodes int32 `json:"nodes"`
	// Pods is how many running pods that costs their GPUs.
	Pods int32 `json:"pods"`
	// Waves are the nodes in the order in which they will change, canaries first; at most 16 waves with 64 names each are written.
	// +optional
	// +listType=atomic
	Waves []Wave `json:"waves,omitempty"`
}

// Wave is a group of nodes that change together.
type Wave struct {
	// Count is how many there are.
	Count int32 `json:"count"`
	// Nodes are the names of the first 64.
	// +optional
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
}

// RolloutStatus is where the change of drivers stands.
type RolloutStatus struct {
	// Digest identifies what is being rolled out.
	Digest string `json:"digest"`
	// Stage is Canary, Soak, Waves, Paused or Done.
	// +kubebuilder:validation:Enum=Canary;Soak;Waves;Paused;Done
	Stage RolloutStage `json:"stage"`
	// Since is when the stage began.
	Since metav1.Time `json:"since"`
	// Reason says why it stands where it stands, in words.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Done counts the nodes that run what is being rolled out.
	Done int32 `json:"done"`
	// Running counts the nodes that change now.
	Running int32 `json:"running"`
	// Failed counts the nodes on which it failed.
	Failed int32 `json:"failed"`
	// Waiting counts the nodes that have not begun.
	Waiting int32 `json:"waiting"`
}

// RolloutStage is a part of a rollout.
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
)
