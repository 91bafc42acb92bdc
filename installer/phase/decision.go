package phase

import (
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Action is what is to be done next. Every action may be performed twice: the second time changes nothing.
type Action string

// The actions.
const (
	// Wait: nothing; somebody else is at work, and will be seen when done.
	Wait Action = "Wait"
	// Place writes the labels in Decision.Labels on the Node: operands come and go by them.
	Place Action = "Place"
	// KeepHost sets spec.driver to Decision.Driver: the node's own driver is kept, or with nil whatever it has.
	KeepHost Action = "KeepHost"
	// Adopt sets status.lastGoodDriver, when Decision.Good says so, and then spec.driver to Decision.Driver: what the node has already.
	Adopt Action = "Adopt"
	// Taint makes the DeviceTaintRule of the node, Untaint removes it.
	Taint   Action = "Taint"
	Untaint Action = "Untaint"
	// Enter sets spec.maintenance, Leave removes it.
	Enter Action = "Enter"
	Leave Action = "Leave"
	// Evict asks for the eviction of every holder that is not leaving and carries no skip label. What is refused is a blocked pod in the
	// next observation; Decision.After says when to ask again.
	Evict Action = "Evict"
	// Operate makes the pod that changes the MIG mode, EndOperate removes it.
	Operate    Action = "Operate"
	EndOperate Action = "EndOperate"
	// Validate makes the validation's claims and pods, EndValidate removes them.
	Validate    Action = "Validate"
	EndValidate Action = "EndValidate"
	// Record writes in the status that what is installed is good: lastGoodDriver is spec.driver, validated is this boot, its digest and now,
	// and attempt is Decision.Attempt, which may be nil.
	Record Action = "Record"
	// RollBack writes status.attempt, when Decision.Attempt is set, and then spec.driver and spec.migMode as the decision has them. The
	// rollout grants again when it is time.
	RollBack Action = "RollBack"
)

// Decision is the phase of a node and what to do next. The controller writes phase, step, reason and message into the status when they
// differ from it, and then performs the action.
type Decision struct {
	Phase   v1alpha1.NodePhase
	Step    v1alpha1.UpgradeStep
	Reason  string
	Message string
	Action  Action
	// Labels are what Place writes.
	Labels Labels
	// Maintenance is what Taint and Enter write, but for ID and Since.
	Maintenance v1alpha1.Maintenance
	// Driver and MIGMode are what KeepHost, Adopt and RollBack write into spec, Attempt what Record and RollBack write into the status.
	Driver  *v1alpha1.DesiredDriver
	MIGMode v1alpha1.MIGMode
	// Good is whether Adopt records the driver as good: the node is in service with it.
	Good    bool
	Attempt *v1alpha1.Attempt
	// After is when to look again although nothing happened: a timeout ends. Zero: only when something happens.
	After time.Duration
	// Conditions are the validations as they stand now, by condition type.
	Conditions []Condition
}

// Labels are the labels by which operands come and go; empty is no label.
type Labels struct {
	Driver, Agent, Maintenance string
	Toolkit, Ready             bool
}

// Condition is a named validation.
type Condition struct {
	Type            string
	Met             bool
	Reason, Message string
}
