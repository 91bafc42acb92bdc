// Package rollout decides which nodes of a fleet may begin to change: canaries first, then waves, within the limits of the upgrade
// policy. It is pure; what it must know of the past stands in the GPUNodes. A node that has never been in service is not upgraded but
// installed: that takes no slot.
package rollout

import (
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Fleet is every node that gets its driver from one owner (an NVIDIADriver or the ClusterPolicy), and how it may change.
type Fleet struct {
	Now    time.Time
	Policy v1alpha1.UpgradePolicy
	// Paused is whether a person has paused it, Resumed the digest for which a person has ended a pause (or "true").
	Paused  bool
	Resumed string
	// Status is what was said last.
	Status *v1alpha1.RolloutStatus
	Nodes  []Node
}

// Node is a node of the fleet.
type Node struct {
	Name string
	// Wanted is the digest that the node is to have (nodes of other kernels have other digests); Current is that of spec.driver: what it has been
	// granted; LastGood that of the last good driver. Empty: none, or the host's own.
	Wanted, Current, LastGood string
	// New is whether the node has never been in service: it is installed, at once, whatever holds upgrades.
	New bool
	// Change is whether the node must change for another reason that takes its GPUs away (its MIG mode) and has not been granted that;
	// Changing whether it has, and is not yet as it is to be.
	Change, Changing bool
	Phase            v1alpha1.NodePhase
	// Since is when the phase began.
	Since time.Time
	// Attempt is the last failure on the node.
	Attempt *v1alpha1.Attempt
	// Available is whether the node is Ready in Kubernetes and not cordoned; Skipped whether a person has left it out.
	Available, Skipped bool
	// Pods is how many running pods hold its GPUs: nodes with fewer go first.
	Pods int32
	// Clique is the NVLink fabric across nodes that it belongs to: the nodes of a clique follow each other.
	Clique string
}

// Decision is what may begin now.
type Decision struct {
	// Grant are the names of nodes whose spec may be set to what is wanted, in order.
	Grant []string
	// Status is what to say; nil when nothing is to be done and nothing was.
	Status *v1alpha1.RolloutStatus
	// Waits says of every node that must change, is not changing and may not begin now why not, in the order in which they would.
	Waits []Wait
	// Plan is everything that is still to be done.
	Plan v1alpha1.Plan
	// After is when to look again although nothing happened; zero: only when something happens.
	After time.Duration
}

// Wait is why a node does not begin.
type Wait struct{ Node, Reason string }

// The reasons why a node does not begin. They are explained in installer/README.md.
const (
	WaitPaused      = "Paused"         // a person has paused the rollout
	WaitManual      = "NotAutomatic"   // upgrade.auto is off and nobody has started it
	WaitFailures    = "FailureBudget"  // more nodes failed than may
	WaitWindow      = "OutsideWindow"  // the maintenance window is closed
	WaitCanary      = "Canary"         // the canaries come first
	WaitSoak        = "Soak"           // the canaries are watched
	WaitParallel    = "MaxParallel"    // as many nodes change as may
	WaitUnavailable = "MaxUnavailable" // as many nodes are out of service as may
	WaitNode        = "NodeNotReady"   // the node is cordoned or not Ready
	WaitRetry       = "RetryAfter"     // it failed, and rests until it is tried again
	WaitSkipped     = "Skipped"        // a person has left it out
	WaitFailed      = "Failed"         // it failed as often as it may
)
