package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HealthSpec says what becomes of a GPU that is not well.
type HealthSpec struct {
	// Evict has the pods of a device with a Fatal fault evicted: its taint is NoExecute then. Off by default: it is NoSchedule, and what runs
	// there ends by itself or by hand. Kubernetes deletes such pods without regard to PodDisruptionBudgets; a toleration in the claim
	// gives them time.
	// +optional
	Evict bool `json:"evict,omitempty"`
	// QuietPeriod is how long a condition that passes by itself must be gone before the device is well again, by default 5m, at most 1h. It doubles, up to 1h, for
	// one that comes and goes.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="must be more than 0s and at most 1h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	QuietPeriod *metav1.Duration `json:"quietPeriod,omitempty"`
	// XIDs say what XIDs mean here; those that are not named are judged by Tessera's table (docs/health-xids.md).
	// +optional
	// +listType=map
	// +listMapKey=code
	// +kubebuilder:validation:MaxItems=64
	XIDs []XIDRule `json:"xids,omitempty"`
}

// XIDRule says what an XID means.
type XIDRule struct {
	// Code is the XID.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Code int `json:"code"`
	// Severity is what becomes of the device: Harmless nothing, Warning it is told, Critical no new claims, Fatal no new claims and, with evict, its pods
	// are evicted.
	// +kubebuilder:validation:Enum=Harmless;Warning;Critical;Fatal
	Severity string `json:"severity"`
	// Remedy is what ends it: Wait it passes by itself, Restart the programs must end, Reset of the GPU, Reboot of the node, Replace the GPU. By default
	// that of the table.
	// +optional
	// +kubebuilder:validation:Enum=Wait;Restart;Reset;Reboot;Replace
	Remedy string `json:"remedy,omitempty"`
}

// RemediationSpec says what the installer does about GPUs that are not well.
type RemediationSpec struct {
	// Mode is Off, Suggest (GPUNodes say what would be done) or Act. Suggest by default.
	// +optional
	// +kubebuilder:validation:Enum=Off;Suggest;Act
	Mode RemediationMode `json:"mode,omitempty"`
	// MaxParallel is how many GPUs of the cluster are remedied at a time, by default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxParallel *int32 `json:"maxParallel,omitempty"`
	// Attempts is how often a GPU is reset for the same fault before a reboot is asked for, by default 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Attempts *int32 `json:"attempts,omitempty"`
	// Reboot asks for a reboot where no reset helps: the condition RebootRequired of the GPUNode and the label tessera.dev/reboot-required
	// of the Node, for people and for what reboots nodes. On by default.
	// +optional
	Reboot *bool `json:"reboot,omitempty"`
	// Drain says how pods leave the GPU. Pods on other GPUs of the node stay.
	// +optional
	Drain DrainSpec `json:"drain,omitempty"`
}

// RemediationMode is how far the installer goes.
type RemediationMode string

// The modes of remediation.
const (
	RemediationOff     RemediationMode = "Off"
	RemediationSuggest RemediationMode = "Suggest"
	RemediationAct     RemediationMode = "Act"
)

// GPUFault is something that is wrong with a GPU, as its agent says.
type GPUFault struct {
	// GPU is the GPU's name, as in attributes of its devices.
	GPU string `json:"gpu"`
	// UUID is the GPU's.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Device is the name of the one MIG device that is affected; empty: the whole GPU is.
	// +optional
	Device string `json:"device,omitempty"`
	// Signal is xid, lost, ecc, remap-failed, remap-pending, retire-pending, nvlink, fabric, heat, power or driver.
	Signal string `json:"signal"`
	// XID is the number, of an XID.
	// +optional
	XID int32 `json:"xid,omitempty"`
	// Severity is Warning, Critical or Fatal.
	Severity string `json:"severity"`
	// Remedy is Wait, Restart, Reset, Reboot or Replace.
	Remedy string `json:"remedy"`
	// Message is for people: what happened, and what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when it was first seen.
	Since metav1.Time `json:"since"`
	// BootID is the boot in which it was last seen.
	BootID string `json:"bootID"`
}

// Remediation is what the installer wants done about one GPU.
type Remediation struct {
	// ID is new for every attempt; the agent repeats it.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// GPU is the GPU's name.
	// +kubebuilder:validation:MaxLength=64
	GPU string `json:"gpu"`
	// Step is what the agent is to do: Hold refuses new claims on the GPU and taints its devices, Reset also resets it once nothing is prepared on it,
	// Validate lets the installer's validation through.
	// +kubebuilder:validation:Enum=Hold;Reset;Validate
	Step RemediationOrder `json:"step"`
	// Reason is told to users whose pods are refused.
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// Since is when the attempt began.
	Since metav1.Time `json:"since"`
}

// RemediationOrder is what the agent is to do for a remedy.
type RemediationOrder string

// The orders, each of which includes the one before.
const (
	OrderHold     RemediationOrder = "Hold"
	OrderReset    RemediationOrder = "Reset"
	OrderValidate RemediationOrder = "Validate"
)

// AgentRemediation is how far the agent is with a remedy.
type AgentRemediation struct {
	// ID repeats spec.remediations.
	ID string `json:"id"`
	// State is Holding (new claims are refused), Resetting, Reset (done: the GPU answers again) or Failed (the reset failed, see message; it is not tried again for
	// this ID).
	// +kubebuilder:validation:Enum=Holding;Resetting;Reset;Failed
	State AgentRemediationState `json:"state"`
	// PreparedClaims is how many claims are prepared on the GPU and on those that are reset along with it.
	PreparedClaims int32 `json:"preparedClaims"`
	// Message is for people: what stands in the way, or what failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// AgentRemediationState is how far the agent is.
type AgentRemediationState string

// The states of a remedy on the node.
const (
	RemediationStateHolding   AgentRemediationState = "Holding"
	RemediationStateResetting AgentRemediationState = "Resetting"
	RemediationStateReset     AgentRemediationState = "Reset"
	RemediationStateFailed    AgentRemediationState = "Failed"
)

// RemediationStatus is where the installer stands with one GPU that is not well.
type RemediationStatus struct {
	// GPU is the GPU's name.
	GPU string `json:"gpu"`
	// Step is Suggested, Waiting, Hold, Drain, Reset, Validate, Restore, RebootRequested or Replace.
	Step RemediationStep `json:"step"`
	// Reason is one word why it stands there.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is for people: what is or would be done, what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when the step began, or the reason for which it stands.
	Since metav1.Time `json:"since"`
	// Began is when the GPU was taken out; absent while it was not.
	// +optional
	Began *metav1.Time `json:"began,omitempty"`
	// ID is that of the present attempt, and of the record that is made of it; absent: nothing has begun.
	// +optional
	ID string `json:"id,omitempty"`
	// Attempts is how often it was reset for these faults.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// UUID is the GPU's, as its faults say.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Faults are what it is about, such as XID 79.
	// +optional
	// +listType=atomic
	Faults []string `json:"faults,omitempty"`
	// BootID is the boot in which a reboot or a new GPU was asked for.
	// +optional
	BootID string `json:"bootID,omitempty"`
}

// RemediationStep is a step of a remediation.
type RemediationStep string

// The steps of a remediation, in their order; the last two are what is left when no reset helps.
const (
	RemediationStepSuggested       RemediationStep = "Suggested"       // mode Suggest: what would be done
	RemediationStepWaiting         RemediationStep = "Waiting"         // not begun: budget, pause, maintenance, peers
	RemediationStepHold            RemediationStep = "Hold"            // no new claims on the GPU
	RemediationStepDrain           RemediationStep = "Drain"           // its pods are evicted
	RemediationStepReset           RemediationStep = "Reset"           // monitoring leaves, the agent resets it
	RemediationStepValidate        RemediationStep = "Validate"        // a claim proves it
	RemediationStepRestore         RemediationStep = "Restore"         // its devices are given to claims again
	RemediationStepRebootRequested RemediationStep = "RebootRequested" // the node must be rebooted
	RemediationStepReplace         RemediationStep = "Replace"         // the GPU must be replaced
)

// RemediationRecord is a remediation that is over.
type RemediationRecord struct {
	// ID is that of the last attempt; no two records have the same.
	// +optional
	ID string `json:"id,omitempty"`
	// GPU is the GPU's name.
	GPU string `json:"gpu"`
	// UUID is the GPU's.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Faults are what it was about, such as XID 79.
	// +listType=atomic
	Faults []string `json:"faults"`
	// Outcome is Recovered, Failed, or Stopped (by a person, a policy, or because the fault was over by itself).
	// +kubebuilder:validation:Enum=Recovered;Failed;Stopped
	Outcome RemediationOutcome `json:"outcome"`
	// Reason is one word why it ended so.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is for people.
	// +optional
	Message string `json:"message,omitempty"`
	// Attempts is how often it was reset.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// BootID is the boot in which a reboot or a new GPU was asked for; absent: neither was.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Began is when the GPU was taken out, Ended when it came back or was given up.
	Began metav1.Time `json:"began"`
	// Ended is when it came back or was given up.
	Ended metav1.Time `json:"ended"`
}

// RemediationOutcome is how a remediation ended.
type RemediationOutcome string

// The outcomes.
const (
	OutcomeRecovered RemediationOutcome = "Recovered"
	OutcomeFailed    RemediationOutcome = "Failed"
	OutcomeStopped   RemediationOutcome = "Stopped"
)

// The conditions of a GPUNode that speak of health.
const (
	// ConditionGPUsHealthy is False while a GPU of the node has a fault that is Critical or Fatal.
	ConditionGPUsHealthy = "GPUsHealthy"
	// ConditionRebootRequired is True while a remediation waits for a reboot.
	ConditionRebootRequired = "RebootRequired"
)

// RemediationPaused reports whether the annotations of a ClusterPolicy or GPUNode stop remediation there (AnnotationPauseRemediation).
func RemediationPaused(annotations map[string]string) bool {
	value, set := annotations[AnnotationPauseRemediation]
	return set && value != "false"
}

// Annotations, labels and taints of health and remediation.
const (
	// AnnotationPauseRemediation, "true", on ClusterPolicy or GPUNode stops remediation there: nothing begins, and what has not reset its GPU yet gives it back.
	// Every value but "false" counts as "true".
	AnnotationPauseRemediation = "tessera.dev/pause-remediation"
	// LabelRebootRequired is true on nodes for which a reboot is asked.
	LabelRebootRequired = "tessera.dev/reboot-required"
	// TaintRemedy, behind the driver's name, is the key of the taint of devices whose GPU is held for a remedy. Those of faults have the
	// name of the signal there.
	TaintRemediation = "remediation"
)
