// Package rollout decides which nodes of a fleet may start to change: canaries first, then waves, within the limits of the upgrade policy. It is
// pure; all state is in the GPUNodes. A node that has never been in service is installed and not upgraded: it takes no slot. A node that is down, as after
// a boot into another kernel, is not in service either: it waits for no canary, window or other node in service.
package rollout

import (
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Fleet has all nodes whose driver belongs to one owner (an NVIDIADriver or the ClusterPolicy), and the limits for their changes.
type Fleet struct {
	Now    time.Time
	Policy v1alpha1.UpgradePolicy
	// Paused reports whether a person paused the rollout. Resumed is the digest for which a person ended a pause, or "true" for any.
	Paused  bool
	Resumed string
	// Status is the last published status.
	Status *v1alpha1.RolloutStatus
	Nodes  []Node
}

// Node is a node of the fleet.
type Node struct {
	Name string
	// Wanted is the digest of the node's target (nodes with other kernels have other digests), Current that of spec.driver, which has been granted,
	// and LastGood that of the last good driver. Empty means none or the host's own driver.
	Wanted, Current, LastGood string
	// New reports whether the node has never been in service. It is installed at once, independent of all limits.
	New bool
	// Change reports whether the node must change for another reason that takes its GPUs out of service (its MIG mode) and that has not been granted.
	// Changing reports whether it has been granted and is not complete.
	Change, Changing bool
	// DriverRestart reports whether the node must change, or is changing, because its driver's pod cannot start while pods use the loaded driver.
	DriverRestart bool
	Phase         v1alpha1.NodePhase
	// Down reports whether no pod can use the node's GPUs: its driver failed, and none is loaded since the boot. The node changes its driver at
	// once, within a separate budget.
	Down bool
	// Unseen reports whether Phase was determined before the last grant.
	Unseen bool
	// Since is the start time of the phase.
	Since time.Time
	// Attempt is the last failure on the node.
	Attempt *v1alpha1.Attempt
	// Available reports whether the node is Ready in Kubernetes and not cordoned. Skipped reports whether a person excluded it.
	Available, Skipped bool
	// Pods is the number of running pods that use its GPUs: nodes with fewer pods change first.
	Pods int32
	// Clique is the multi-node NVLink domain of the node: the nodes of a clique change consecutively.
	Clique string
}

// Decision lists the nodes that may start now.
type Decision struct {
	// Grant are the names of nodes whose spec may be set to the target, in order.
	Grant []string
	// Restart are the names of nodes that are down and whose driver may be set to the target. Their MIG mode is not granted: the change would drain
	// the node after its driver has returned, and is subject to all limits.
	Restart []string
	// Status is the status to publish; nil if there is and was nothing to do.
	Status *v1alpha1.RolloutStatus
	// Waits has the reason for every node that must change, is not changing and may not start now, in the order of the rollout.
	Waits []Wait
	// Plan has all remaining changes.
	Plan v1alpha1.Plan
	// After is the delay until the next evaluation. Zero means that only an event triggers one.
	After time.Duration
}

// Wait is the reason why a node does not start.
type Wait struct{ Node, Reason string }

// Reasons why a node does not start. installer/README.md explains them.
const (
	WaitPaused      = "Paused"         // a person paused the rollout
	WaitManual      = "NotAutomatic"   // upgrade.auto is off and no person has started the rollout
	WaitFailures    = "FailureBudget"  // more nodes failed than the budget allows
	WaitWindow      = "OutsideWindow"  // the maintenance window is closed
	WaitCanary      = "Canary"         // the canaries change first
	WaitSoak        = "Soak"           // the canaries are in their soak time
	WaitParallel    = "MaxParallel"    // the maximum number of nodes is changing
	WaitUnavailable = "MaxUnavailable" // the maximum number of nodes is out of service
	WaitRestart     = "RestartBudget"  // the node is down, and the maximum number of such nodes is installing drivers
	WaitNode        = "NodeNotReady"   // the node is cordoned or not Ready
	WaitRetry       = "RetryAfter"     // it failed, and its retry delay has not ended
	WaitSkipped     = "Skipped"        // a person excluded it
	WaitFailed      = "Failed"         // it has used all its attempts
)
