package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemediationSpec configures the recovery of GPUs whose faults have a remedy of Restart or more.
type RemediationSpec struct {
	// Mode is Off, Suggest (the next step is written to the status of the GPUNode, nothing is changed) or Act. Default Suggest.
	// +optional
	// +kubebuilder:validation:Enum=Off;Suggest;Act
	Mode RemediationMode `json:"mode,omitempty"`
	// MaxParallel is how many GPUs of the cluster are in remediation at a time. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxParallel *int32 `json:"maxParallel,omitempty"`
	// Attempts is how often a GPU is reset for the same fault before a reboot is requested. Default 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Attempts *int32 `json:"attempts,omitempty"`
	// Reboot requests a reboot if resets do not clear the fault: it sets the condition RebootRequired of the GPUNode and the label
	// tessera.dev/reboot-required of the Node. Tessera itself does not reboot nodes. On by default.
	// +optional
	Reboot *bool `json:"reboot,omitempty"`
	// Drain configures the eviction of pods from the GPU. Pods on other GPUs of the node are not evicted.
	// +optional
	Drain DrainSpec `json:"drain,omitempty"`
}

// RemediationMode is what the installer may do about faults.
type RemediationMode string

// The modes of remediation.
const (
	RemediationOff     RemediationMode = "Off"
	RemediationSuggest RemediationMode = "Suggest"
	RemediationAct     RemediationMode = "Act"
)

// Remediation is an order of the installer to the agent for one GPU.
type Remediation struct {
	// ID identifies the attempt. The agent repeats it in status.agent.remediations.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// GPU is the name of the GPU.
	// +kubebuilder:validation:MaxLength=64
	GPU string `json:"gpu"`
	// Step is Hold (refuse new claims on the GPU and taint its devices), Reset (hold, and reset the GPU once no claim is prepared on it) or Validate
	// (hold, and permit the claim of the installer's validation).
	// +kubebuilder:validation:Enum=Hold;Reset;Validate
	Step RemediationOrder `json:"step"`
	// Reason is part of the message for users whose claims are refused.
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// Since is when the attempt started.
	Since metav1.Time `json:"since"`
}

// RemediationOrder is the step that the agent must perform.
type RemediationOrder string

// The orders. Each includes the hold.
const (
	OrderHold     RemediationOrder = "Hold"
	OrderReset    RemediationOrder = "Reset"
	OrderValidate RemediationOrder = "Validate"
)

// AgentRemediation is the progress of the agent with an order.
type AgentRemediation struct {
	// ID is that of the order in spec.remediations.
	ID string `json:"id"`
	// State is Holding (new claims are refused), Resetting, Reset (the GPU was reset and responds) or Failed (the reset failed, see message; the agent
	// does not retry it for this ID).
	// +kubebuilder:validation:Enum=Holding;Resetting;Reset;Failed
	State AgentRemediationState `json:"state"`
	// PreparedClaims is the number of claims that are prepared on the GPU and on the GPUs that are reset together with it.
	PreparedClaims int32 `json:"preparedClaims"`
	// Message is what prevents the reset, or why it failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// AgentRemediationState is the state of an order on the node.
type AgentRemediationState string

// The states of an order on the node.
const (
	RemediationStateHolding   AgentRemediationState = "Holding"
	RemediationStateResetting AgentRemediationState = "Resetting"
	RemediationStateReset     AgentRemediationState = "Reset"
	RemediationStateFailed    AgentRemediationState = "Failed"
)

// RemediationStatus is the progress of the installer with the faults of one GPU.
type RemediationStatus struct {
	// GPU is the name of the GPU.
	GPU string `json:"gpu"`
	// Step is Suggested, Waiting, Hold, Drain, Reset, Validate, Restore, RebootRequested or Replace.
	Step RemediationStep `json:"step"`
	// Reason is the machine-readable cause of the step.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is what is done or, in mode Suggest, would be done, and what the step waits for.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when the step started or its reason changed.
	Since metav1.Time `json:"since"`
	// Began is when the GPU was taken out of service. Absent before that.
	// +optional
	Began *metav1.Time `json:"began,omitempty"`
	// ID identifies the current attempt and its record in the history. Absent before the first attempt.
	// +optional
	ID string `json:"id,omitempty"`
	// Attempts is the number of resets for these faults.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// UUID is the UUID of the GPU.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Faults are the faults that the remediation is for, such as XID 79.
	// +optional
	// +listType=atomic
	Faults []string `json:"faults,omitempty"`
	// BootID is the boot in which a reboot or a replacement was requested.
	// +optional
	BootID string `json:"bootID,omitempty"`
}

// RemediationStep is a step of a remediation.
type RemediationStep string

// The steps of a remediation, in order. The last two follow when resets do not clear the fault.
const (
	RemediationStepSuggested       RemediationStep = "Suggested"       // mode Suggest: no change, see the message
	RemediationStepWaiting         RemediationStep = "Waiting"         // not started: budget, pause, maintenance or backoff
	RemediationStepHold            RemediationStep = "Hold"            // the agent refuses new claims on the GPU
	RemediationStepDrain           RemediationStep = "Drain"           // the pods on the GPU are evicted
	RemediationStepReset           RemediationStep = "Reset"           // monitoring is removed, the agent resets the GPU
	RemediationStepValidate        RemediationStep = "Validate"        // a claim tests the GPU
	RemediationStepRestore         RemediationStep = "Restore"         // the GPU returns to service
	RemediationStepRebootRequested RemediationStep = "RebootRequested" // the node must be rebooted
	RemediationStepReplace         RemediationStep = "Replace"         // the GPU must be replaced
)

// RemediationSteps returns all steps.
func RemediationSteps() []RemediationStep {
	return []RemediationStep{
		RemediationStepSuggested, RemediationStepWaiting, RemediationStepHold, RemediationStepDrain, RemediationStepReset, RemediationStepValidate,
		RemediationStepRestore, RemediationStepRebootRequested, RemediationStepReplace,
	}
}

// RemediationRecord is a completed remediation.
type RemediationRecord struct {
	// ID is that of the last attempt. It is unique in the history.
	// +optional
	ID string `json:"id,omitempty"`
	// GPU is the name of the GPU.
	GPU string `json:"gpu"`
	// UUID is the UUID of the GPU.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Faults are the faults that the remediation was for, such as XID 79.
	// +listType=atomic
	Faults []string `json:"faults"`
	// Outcome is Recovered, Failed or Stopped (by an administrator, a policy, or because the fault was cleared without a reset).
	// +kubebuilder:validation:Enum=Recovered;Failed;Stopped
	Outcome RemediationOutcome `json:"outcome"`
	// Reason is the machine-readable cause of the outcome.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message describes the outcome.
	// +optional
	Message string `json:"message,omitempty"`
	// Attempts is the number of resets.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// BootID is the boot in which a reboot or a replacement was requested. Absent if none was.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Began is when the GPU was taken out of service.
	Began metav1.Time `json:"began"`
	// Ended is when the GPU returned to service or the remediation was stopped.
	Ended metav1.Time `json:"ended"`
}

// RemediationOutcome is the result of a remediation.
type RemediationOutcome string

// The outcomes.
const (
	OutcomeRecovered RemediationOutcome = "Recovered"
	OutcomeFailed    RemediationOutcome = "Failed"
	OutcomeStopped   RemediationOutcome = "Stopped"
)

// RemediationPaused reports whether the annotations of a ClusterPolicy or GPUNode pause remediation (AnnotationPauseRemediation).
func RemediationPaused(annotations map[string]string) bool {
	value, set := annotations[AnnotationPauseRemediation]
	return set && value != "false"
}

// Annotations, labels and taints of remediation.
const (
	// AnnotationPauseRemediation on a ClusterPolicy or GPUNode pauses remediation there: none starts, and GPUs that were not yet reset return to service.
	// Every value except "false" pauses.
	AnnotationPauseRemediation = "tessera.dev/pause-remediation"
	// LabelRebootRequired has the value true on nodes that require a reboot.
	LabelRebootRequired = "tessera.dev/reboot-required"
	// TaintRemediation, after the driver's name and a slash, is the key of the taint on devices of a held GPU. The taint of a fault has the signal there.
	TaintRemediation = "remediation"
)
