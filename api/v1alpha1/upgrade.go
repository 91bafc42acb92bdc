package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// UpgradePolicy says how a new driver, or another change that takes GPUs away for a while, comes to nodes that pods use. Nodes
// without a driver are not upgraded but installed, all at once.
type UpgradePolicy struct {
	// Auto starts a rollout by itself. On by default; off, it waits for the annotation tessera.dev/resume-upgrade.
	// +optional
	Auto *bool `json:"auto,omitempty"`
	// Canary is how many nodes go first, a number or a percentage, by default 1. 0 is no canary.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a number of nodes from 0, or a percentage from 0% to 100%"
	Canary *intstr.IntOrString `json:"canary,omitempty"`
	// Soak is how long the canaries must stay Ready before the others follow, by default 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Soak *metav1.Duration `json:"soak,omitempty"`
	// MaxParallel is how many nodes change at a time, by default 1; 0 is no limit but maxUnavailable's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxParallel *int32 `json:"maxParallel,omitempty"`
	// MaxUnavailable is how many nodes may be out of service for whatever reason before none is taken out, a number or a
	// percentage rounded up, by default 25%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="must be a number of nodes from 1, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// FailureBudget is how many nodes may fail before the rollout pauses, a number or a percentage, by default 1: the second failure
	// pauses it.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a number of nodes from 0, or a percentage from 0% to 100%"
	FailureBudget *intstr.IntOrString `json:"failureBudget,omitempty"`
	// Attempts is how often a node is tried with the same driver, by default 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Attempts *int32 `json:"attempts,omitempty"`
	// RetryAfter is how long a node rests on its last good driver between two attempts, by default 5m, doubled with each.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than nothing, such as 5m"
	RetryAfter *metav1.Duration `json:"retryAfter,omitempty"`
	// Drain says how pods leave the GPUs.
	// +optional
	Drain DrainSpec `json:"drain,omitempty"`
	// Window limits when nodes begin; what has begun is finished. Always by default.
	// +optional
	Window *MaintenanceWindow `json:"window,omitempty"`
}

// DrainSpec says how pods leave the GPUs of a node. Pods without GPUs stay.
//
// +kubebuilder:validation:XValidation:rule="!has(self.waitTimeout) || has(self.waitFor)",message="waitTimeout needs waitFor: nothing is waited for without it"
type DrainSpec struct {
	// Timeout is how long evictions may be refused or take, by default 5m. Then the node is blocked, says by which pods, goes back
	// into service and is tried again.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than nothing, such as 5m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Force evicts pods that no controller will make anew. Off by default: such a pod blocks the node.
	// +optional
	Force bool `json:"force,omitempty"`
	// DeleteEmptyDir evicts pods that lose data in an emptyDir. On by default.
	// +optional
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
	// WaitFor selects pods, such as those of jobs, that are waited for before anything is evicted. None by default.
	// +optional
	WaitFor *metav1.LabelSelector `json:"waitFor,omitempty"`
	// WaitTimeout is how long they are waited for, by default without end.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than nothing, such as 5m"
	WaitTimeout *metav1.Duration `json:"waitTimeout,omitempty"`
}

// MaintenanceWindow is a span of hours on some days.
type MaintenanceWindow struct {
	// Days are the days on which it begins, all by default.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
	Days []string `json:"days,omitempty"`
	// Start is a time of the day, such as 22:00.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// Duration is its length, at most 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('24h')",message="must be longer than nothing and at most 24h"
	Duration metav1.Duration `json:"duration"`
	// TimeZone is a name of the IANA database, such as Europe/Berlin, by default UTC. One that does not exist keeps nodes from beginning,
	// and is reported.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	TimeZone string `json:"timeZone,omitempty"`
}

// Annotations and labels by which people steer the installer.
const (
	// AnnotationPause on ClusterPolicy, NVIDIADriver or GPUNode keeps nodes from beginning an upgrade; AnnotationResume on
	// ClusterPolicy or NVIDIADriver, set to the digest in status.rollout or to true, ends a pause that failures caused, or starts a rollout that is not automatic.
	AnnotationPause  = "tessera.dev/pause-upgrade"
	AnnotationResume = "tessera.dev/resume-upgrade"
	// LabelSkipUpgrade on a Node set to true leaves it out of upgrades.
	LabelSkipUpgrade = "tessera.dev/skip-upgrade"
	// LabelSkipDrain on a pod set to true leaves it to itself while its GPUs are drained: the node waits for it.
	LabelSkipDrain = "tessera.dev/skip-drain"
	// LabelOperands set to false on a Node removes every operand from it; LabelDeployPrefix with a component's name does so for
	// one: driver, node-agent, dcgm, dcgm-exporter, operator-validator.
	LabelOperands     = "nvidia.com/gpu.deploy.operands"
	LabelDeployPrefix = "nvidia.com/gpu.deploy."
)

// Labels of nodes by which the installer places operands. It alone writes them.
const (
	// LabelDriver names the driver DaemonSet of the node by its digest.
	LabelDriver = "tessera.dev/driver"
	// LabelAgent names the pool of the node agent; absent, no agent runs there.
	LabelAgent = "tessera.dev/agent"
	// LabelToolkit is true on nodes whose container runtime must be told to read CDI specs.
	LabelToolkit = "tessera.dev/toolkit"
	// LabelReady is true on nodes whose GPUs can be used: monitoring runs there.
	LabelReady = "tessera.dev/ready"
	// LabelMaintenance names the operation for which the GPUs of the node are out of service; the scheduler sends no pod with
	// claims there.
	LabelMaintenance = "tessera.dev/maintenance"
	// LabelPresent is true on every node with an NVIDIA GPU.
	LabelPresent = "nvidia.com/gpu.present"
	// TaintNotReady keeps pods off a node until it is ready, when ClusterPolicy says so.
	TaintNotReady = "tessera.dev/not-ready"
	// TaintMaintenance is the key of the device taint while the GPUs of a node are out of service.
	TaintMaintenance = "tessera.dev/maintenance"
)
