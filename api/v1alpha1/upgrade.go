package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// UpgradePolicy configures rollouts: a new driver, or another change that takes GPUs out of service for a time. It does not apply to
// the first installation of a driver, which runs on all nodes at once.
type UpgradePolicy struct {
	// Auto starts rollouts automatically. On by default. If it is off, a rollout waits for the annotation tessera.dev/resume-upgrade.
	// +optional
	Auto *bool `json:"auto,omitempty"`
	// Canary is the number or percentage of nodes that are changed first. Default 1; 0 disables the canary stage.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a number of nodes from 0, or a percentage from 0% to 100%"
	Canary *intstr.IntOrString `json:"canary,omitempty"`
	// Soak is how long the canaries must stay Ready before the other nodes are changed. Default 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Soak *metav1.Duration `json:"soak,omitempty"`
	// MaxParallel is the number of nodes that are changed at the same time. Default 1. With 0, only maxUnavailable limits it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxParallel *int32 `json:"maxParallel,omitempty"`
	// MaxUnavailable is the number or percentage (rounded up) of nodes that may be out of service, for any cause. Default 25%. No node is
	// taken out of service while the limit is reached.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="must be a number of nodes from 1, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// FailureBudget is the number or percentage of nodes that may fail without pausing the rollout. Default 1: the second failure pauses it.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a number of nodes from 0, or a percentage from 0% to 100%"
	FailureBudget *intstr.IntOrString `json:"failureBudget,omitempty"`
	// Attempts is how often a change to the same driver is attempted on a node. Default 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Attempts *int32 `json:"attempts,omitempty"`
	// RetryAfter is how long a node runs its last good driver before the next attempt. Default 5m. It doubles with every failure.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be greater than 0s, such as 5m"
	RetryAfter *metav1.Duration `json:"retryAfter,omitempty"`
	// Drain configures the eviction of pods from the GPUs.
	// +optional
	Drain DrainSpec `json:"drain,omitempty"`
	// Window is the time in which changes of nodes may start. A change that has started is completed after the window. By default changes
	// start at any time.
	// +optional
	Window *MaintenanceWindow `json:"window,omitempty"`
}

// DrainSpec configures the eviction of pods from the GPUs of a node. Pods without GPUs are not evicted.
//
// +kubebuilder:validation:XValidation:rule="!has(self.waitTimeout) || has(self.waitFor)",message="waitTimeout requires waitFor"
type DrainSpec struct {
	// Timeout is how long the drain may take, including refused evictions. Default 5m. After it the node returns to service, its message
	// lists the remaining pods, and the change is retried later.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be greater than 0s, such as 5m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Force evicts pods that no controller recreates. Off by default: such a pod blocks the drain.
	// +optional
	Force bool `json:"force,omitempty"`
	// DeleteEmptyDir evicts pods that have emptyDir volumes; their data is lost. On by default.
	// +optional
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
	// WaitFor selects pods, such as those of jobs, whose end the drain waits for before it evicts pods. None by default.
	// +optional
	WaitFor *metav1.LabelSelector `json:"waitFor,omitempty"`
	// WaitTimeout is how long the drain waits for these pods. By default there is no limit.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be greater than 0s, such as 5m"
	WaitTimeout *metav1.Duration `json:"waitTimeout,omitempty"`
}

// MaintenanceWindow is a recurring period of time.
type MaintenanceWindow struct {
	// Days are the days on which the window starts. The default is all days.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
	Days []string `json:"days,omitempty"`
	// Start is the time of day at which the window starts, such as 22:00.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// Duration is the length of the window, at most 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('24h')",message="must be greater than 0s and at most 24h"
	Duration metav1.Duration `json:"duration"`
	// TimeZone is a name of the IANA time zone database, such as Europe/Berlin. Default UTC. With an unknown name no change starts, and the
	// status reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	TimeZone string `json:"timeZone,omitempty"`
}

// Annotations and labels by which users control the installer.
const (
	// AnnotationPause on a ClusterPolicy, NVIDIADriver or GPUNode prevents the start of upgrades. AnnotationResume on a ClusterPolicy or
	// NVIDIADriver, set to the digest in status.rollout or to true, ends a pause that failures caused, or starts a rollout that is not
	// automatic.
	AnnotationPause  = "tessera.dev/pause-upgrade"
	AnnotationResume = "tessera.dev/resume-upgrade"
	// LabelSkipUpgrade on a Node, set to true, excludes it from upgrades.
	LabelSkipUpgrade = "tessera.dev/skip-upgrade"
	// LabelSkipDrain on a pod, set to true, excludes it from evictions: the drain waits for the end of the pod.
	LabelSkipDrain = "tessera.dev/skip-drain"
	// LabelOperands on a Node, set to false, removes every operand from it. LabelDeployPrefix followed by a component's name removes that
	// component: driver, node-agent, dcgm, dcgm-exporter, operator-validator or vgpu-device-manager.
	LabelOperands     = "nvidia.com/gpu.deploy.operands"
	LabelDeployPrefix = "nvidia.com/gpu.deploy."
	// LabelVGPUConfig on a Node names the configuration that NVIDIA's vGPU device manager applies. LabelVGPUConfigState is its result, pending,
	// success or failed, which that program writes.
	LabelVGPUConfig      = "nvidia.com/vgpu.config"
	LabelVGPUConfigState = "nvidia.com/vgpu.config.state"
)

// Labels of nodes by which operands are placed. Only the installer writes them.
const (
	// LabelDriver is the digest of the driver DaemonSet that runs on the node.
	LabelDriver = "tessera.dev/driver"
	// LabelAgent is the name of the node agent's pool. Without it no agent runs on the node.
	LabelAgent = "tessera.dev/agent"
	// LabelToolkit is true on nodes whose container runtime must be configured to read CDI specs.
	LabelToolkit = "tessera.dev/toolkit"
	// LabelReady is true on nodes whose GPUs are in service. Monitoring runs on these nodes.
	LabelReady = "tessera.dev/ready"
	// LabelMaintenance is the operation for which the GPUs of the node are out of service. The scheduler binds no pod with claims to the
	// node.
	LabelMaintenance = "tessera.dev/maintenance"
	// LabelPresent is true on every node with an NVIDIA GPU.
	LabelPresent = "nvidia.com/gpu.present"
	// TaintNotReady keeps pods off a node until it is ready, if spec.readinessTaint of the ClusterPolicy is set.
	TaintNotReady = "tessera.dev/not-ready"
	// TaintMaintenance is the key of the device taint while the GPUs of a node are out of service.
	TaintMaintenance = "tessera.dev/maintenance"
	// TaintScheduler is the key of the device taint that prevents other schedulers than tessera-scheduler from allocating devices.
	TaintScheduler = "gpu.tessera.dev/scheduler"
)
