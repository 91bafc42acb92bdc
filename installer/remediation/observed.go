package remediation

import (
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// Observed is one GPU of a node as it is at one moment.
type Observed struct {
	Now time.Time
	// GPU is the GPU's name.
	GPU string
	// Policy is what policies say.
	Policy Policy
	// BootID is the boot that kubelet reports.
	BootID string
	// Speaks is whether the agent that runs now has spoken in this boot. While it has not, Faults and Agent are of no worth.
	Speaks bool
	// Faults are those of this GPU that are Critical or Fatal, as the agent says.
	Faults []v1alpha1.GPUFault
	// Order is the GPU's part of spec.remediations, Status that of status.remediations, Agent what the agent says to the order's ID; nil where there is none.
	Order  *v1alpha1.Remediation
	Status *v1alpha1.RemediationStatus
	Agent  *v1alpha1.AgentRemediation
	// History are the GPU's records in status.history, the latest first.
	History []v1alpha1.RemediationRecord
	// Granted is whether the budget of the cluster lets this GPU be taken out, or has: see Grant.
	Granted bool
	// Paused, when set, says where a person has stopped remediation: on the GPUNode or the ClusterPolicy.
	Paused string
	// Busy, when set, says what else is being done with the node: a maintenance, not Ready, no agent. Nothing begins then.
	Busy string
	// Drain is what holds the GPU, and those that are reset along with it; when Reach names devices, what holds those.
	Drain phase.Drain
	// Monitored is whether pods of monitoring, which keep the GPU open, are on the node.
	Monitored bool
	// Validation is the validation of this GPU for the order's ID; one for another ID is left over. Started is whether its pod has begun to run.
	Validation phase.Validation
	Started    bool
	// Obstacle is why the action that was decided last could not be performed; empty: it was.
	Obstacle string
}

// Policy is what policies say about remediation, complete.
type Policy struct {
	Mode     v1alpha1.RemediationMode
	Attempts int32
	// Reboot is whether a reboot may be asked for.
	Reboot bool
	// Validates is whether there is a validator to prove a GPU with.
	Validates bool
	// DrainTimeout is how long evictions may take, WaitTimeout how long pods are waited for before, without end when zero. ValidateTimeout is how long
	// a GPU may take to be without faults after a reset or a reboot, and then to pass its proof.
	DrainTimeout, WaitTimeout, ValidateTimeout time.Duration
}

// Action is what is to be done next. Every action may be performed twice: the second time changes nothing.
type Action string

// The actions.
const (
	// Wait: nothing; somebody else is at work, and will be seen when done.
	Wait Action = "Wait"
	// Direct writes Decision.Order into spec.remediations, which begins an attempt or takes it a step further.
	Direct Action = "Direct"
	// Evict evicts the holders in Observed.Drain that are not leaving yet.
	Evict Action = "Evict"
	// Validate makes the claim and the pod that prove this GPU, EndValidate removes them.
	Validate    Action = "Validate"
	EndValidate Action = "EndValidate"
	// Release adds Decision.Record to the history, unless a record has its ID already, and then takes the GPU out of spec.remediations.
	Release Action = "Release"
)

// Decision is where a GPU stands and what to do. The controller writes the status when it differs from it, and then performs the action.
type Decision struct {
	// Status becomes the GPU's part of status.remediations; nil: there is nothing to say of it any more.
	Status *v1alpha1.RemediationStatus
	Action Action
	// Order is what Direct writes, whole; status.remediations has its ID already.
	Order v1alpha1.Remediation
	// Record is what Release adds to the history; nil: nothing.
	Record *v1alpha1.RemediationRecord
	// After is when to look again although nothing happened; 0 is never.
	After time.Duration
}
