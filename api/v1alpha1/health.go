package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HealthSpec configures how the agent judges faults of GPUs. The agent detects faults, taints the affected devices and reports the faults in
// status.agent.faults of the GPUNode; RemediationSpec configures the recovery.
type HealthSpec struct {
	// Evict sets the taint effect NoExecute instead of NoSchedule on devices with a Fatal fault, which evicts their pods. Off by default.
	// Kubernetes deletes these pods without regard to PodDisruptionBudgets; a toleration with tolerationSeconds in the claim delays it.
	// +optional
	Evict bool `json:"evict,omitempty"`
	// QuietPeriod is how long a condition with the remedy Wait must be absent before its fault is cleared. Default 5m, at most 1h. It doubles, up to 1h, for
	// a condition that returns.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="must be more than 0s and at most 1h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	QuietPeriod *metav1.Duration `json:"quietPeriod,omitempty"`
	// XIDs replaces entries of Tessera's XID table (docs/health-xids.md).
	// +optional
	// +listType=map
	// +listMapKey=code
	// +kubebuilder:validation:MaxItems=64
	XIDs []XIDRule `json:"xids,omitempty"`
}

// XIDRule is the severity and the remedy of one XID.
type XIDRule struct {
	// Code is the number of the XID.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Code int `json:"code"`
	// Severity is Harmless (the XID is only counted), Warning (a fault is reported), Critical (also no new claims) or Fatal (also, with evict, the
	// pods of the device are evicted).
	// +kubebuilder:validation:Enum=Harmless;Warning;Critical;Fatal
	Severity string `json:"severity"`
	// Remedy is what clears the fault: Wait (the quiet period), Restart (the end of the pods on the device), Reset of the GPU, Reboot of the node, or
	// Replace, a replacement of the GPU. Default: that of Tessera's table.
	// +optional
	// +kubebuilder:validation:Enum=Wait;Restart;Reset;Reboot;Replace
	Remedy string `json:"remedy,omitempty"`
}

// GPUFault is a current fault of a GPU or of one of its MIG devices, as reported by the agent.
type GPUFault struct {
	// GPU is the name of the GPU, as in the names of its devices.
	GPU string `json:"gpu"`
	// UUID is the UUID of the GPU.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Device is the name of the affected MIG device. Empty if the whole GPU is affected.
	// +optional
	Device string `json:"device,omitempty"`
	// Signal is xid, lost, ecc, remap-failed, remap-pending, retire-pending, reboot-needed, reset-needed, recovery, nvlink, fabric, heat, power or
	// driver.
	Signal string `json:"signal"`
	// XID is the number of the XID. Set with the signal xid only.
	// +optional
	XID int32 `json:"xid,omitempty"`
	// Severity is Warning, Critical or Fatal.
	Severity string `json:"severity"`
	// Remedy is Wait, Restart, Reset, Reboot or Replace.
	Remedy string `json:"remedy"`
	// Message describes the fault and the recommended action.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when the fault was first detected.
	Since metav1.Time `json:"since"`
	// BootID is the boot in which the fault was last detected.
	BootID string `json:"bootID"`
}

// The conditions of a GPUNode about health.
const (
	// ConditionGPUsHealthy is False while a GPU of the node has a Critical or Fatal fault.
	ConditionGPUsHealthy = "GPUsHealthy"
	// ConditionRebootRequired is True while a remediation requires a reboot of the node.
	ConditionRebootRequired = "RebootRequired"
	// ConditionDriverRefuses is True while the agent does not retry what the driver refuses because a program has the GPU open.
	ConditionDriverRefuses = "DriverRefuses"
)
