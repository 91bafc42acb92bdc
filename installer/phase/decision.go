package phase

import (
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Action is the next action of the controller. Actions are idempotent.
type Action string

// The actions.
const (
	// Wait performs no action: another component is working, and its result appears in a later observation.
	Wait Action = "Wait"
	// Place writes the labels in Decision.Labels to the Node. DaemonSets of operands select nodes by these labels.
	Place Action = "Place"
	// KeepHost sets spec.driver to Decision.Driver: the host's driver, or nil for no managed driver.
	KeepHost Action = "KeepHost"
	// Adopt sets status.lastGoodDriver if Decision.Good is set, and then spec.driver to Decision.Driver, which is already on the node.
	Adopt Action = "Adopt"
	// Taint taints the GPUs of the node for a maintenance, Untaint removes the taint.
	Taint   Action = "Taint"
	Untaint Action = "Untaint"
	// Enter sets spec.maintenance, Leave clears it.
	Enter Action = "Enter"
	Leave Action = "Leave"
	// Evict requests the eviction of every holder that is not terminating and has no skip label. A pod whose eviction is refused is a blocked pod in
	// the next observation; Decision.After is the delay until the next attempt.
	Evict Action = "Evict"
	// Operate creates the pod that changes the MIG mode, EndOperate deletes it.
	Operate    Action = "Operate"
	EndOperate Action = "EndOperate"
	// Validate creates the validation's claims and pods, EndValidate deletes them.
	Validate    Action = "Validate"
	EndValidate Action = "EndValidate"
	// Record writes a successful validation to the status: lastGoodDriver is set to spec.driver, validated to the current boot, its digest and the
	// current time, and attempt to Decision.Attempt, which may be nil.
	Record Action = "Record"
	// RollBack writes status.attempt if Decision.Attempt is set, and then spec.driver and spec.migMode from the decision. The rollout controller
	// decides when to grant again.
	RollBack Action = "RollBack"
)

// Decision is the phase of a node and the next action. The controller writes phase, step, reason and message to the status if they changed, and then
// performs the action.
type Decision struct {
	Phase   v1alpha1.NodePhase
	Step    v1alpha1.UpgradeStep
	Reason  string
	Message string
	Action  Action
	// Labels are what Place writes.
	Labels Labels
	// Maintenance is what Taint and Enter write, except ID and Since.
	Maintenance v1alpha1.Maintenance
	// Driver and MIGMode are what KeepHost, Adopt and RollBack write to spec. Attempt is what Record and RollBack write to the status.
	Driver  *v1alpha1.DesiredDriver
	MIGMode v1alpha1.MIGMode
	// Good reports whether Adopt records the driver as good: the node is in service with it.
	Good    bool
	Attempt *v1alpha1.Attempt
	// DriverRestart is the driver's pod that cannot start while the GPUs are in use; "" if there is none.
	DriverRestart string
	// After is the delay until the next evaluation, such as the end of a timeout. Zero means that only an event triggers one.
	After time.Duration
	// Conditions are the current validations, by condition type.
	Conditions []Condition
}

// Labels are the node labels by which operands are placed. An empty value means that the label is absent.
type Labels struct {
	Driver, Agent, Maintenance string
	Toolkit, Ready             bool
}

// Condition is the state of one validation.
type Condition struct {
	Type            string
	Met             bool
	Reason, Message string
}
