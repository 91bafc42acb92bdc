package remediation

import (
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// Observed is the state of one GPU at one moment.
type Observed struct {
	Now time.Time
	// GPU is the GPU's name.
	GPU string
	// Policy is the remediation policy.
	Policy Policy
	// BootID is the boot that kubelet reports.
	BootID string
	// AgentReports reports whether the running agent has reported in this boot. Otherwise Faults and Agent are invalid.
	AgentReports bool
	// Faults are the Critical and Fatal faults of this GPU, from the agent.
	Faults []v1alpha1.GPUFault
	// Order is the GPU's entry in spec.remediations, Status in status.remediations, and Agent the agent's status of that order; nil if absent.
	Order  *v1alpha1.Remediation
	Status *v1alpha1.RemediationStatus
	Agent  *v1alpha1.AgentRemediation
	// History has the GPU's records from status.history, newest first.
	History []v1alpha1.RemediationRecord
	// Granted reports whether the budget of the cluster permits this GPU to be out of service; see Grant.
	Granted bool
	// Paused names the object on which a person paused remediation: the GPUNode or the ClusterPolicy. Empty means not paused.
	Paused string
	// Busy names what prevents a start: a maintenance, a node that is not Ready, no agent. Empty means nothing.
	Busy string
	// Drain lists the pods that use the GPU and those that are reset with it, or only the devices that Reach returns.
	Drain phase.Drain
	// Monitored reports whether monitoring pods, which keep the GPU open, are on the node.
	Monitored bool
	// Validation is the validation of this GPU for the order's ID; one for another ID is left over. Started reports whether its pod has started.
	Validation phase.Validation
	Started    bool
	// Obstacle is the error of the last decided action. Empty means success.
	Obstacle string
}

// Policy is the remediation policy, with all defaults set.
type Policy struct {
	Mode     v1alpha1.RemediationMode
	Attempts int32
	// Reboot reports whether a reboot may be requested.
	Reboot bool
	// Validates reports whether a validator exists.
	Validates bool
	// DrainTimeout limits evictions, WaitTimeout the wait for pods before them (zero: no limit). ValidateTimeout limits how long a GPU may take to be
	// free of faults after a reset or a reboot, and then to pass its validation.
	DrainTimeout, WaitTimeout, ValidateTimeout time.Duration
}

// Action is the next action of the controller. Actions are idempotent.
type Action string

// The actions.
const (
	// Wait performs no action: another component is working, and its result appears in a later observation.
	Wait Action = "Wait"
	// Direct writes Decision.Order to spec.remediations, which starts an attempt or advances it.
	Direct Action = "Direct"
	// Evict evicts the holders in Observed.Drain that are not terminating.
	Evict Action = "Evict"
	// Validate creates the claim and the pod that validate this GPU, EndValidate deletes them.
	Validate    Action = "Validate"
	EndValidate Action = "EndValidate"
	// Release adds Decision.Record to the history unless a record with its ID exists, and then removes the GPU from spec.remediations.
	Release Action = "Release"
)

// Decision is the status of a GPU and the next action. The controller writes the status if it changed, and then performs the action.
type Decision struct {
	// Status is the new entry in status.remediations; nil removes it.
	Status *v1alpha1.RemediationStatus
	Action Action
	// Order is the complete order that Direct writes. Its ID is already in status.remediations.
	Order v1alpha1.Remediation
	// Record is what Release adds to the history; nil for none.
	Record *v1alpha1.RemediationRecord
	// After is the delay until the next evaluation. Zero means that only an event triggers one.
	After time.Duration
}
