package rollout

import (
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// needs reports whether the node has not been granted its target.
func (n *Node) needs() bool { return n.Wanted != n.Current || n.Change }

// attempt returns the last failed attempt with the present target, or nil.
func (n *Node) attempt() *v1alpha1.Attempt {
	a := n.Attempt
	if a != nil && (a.Digest == n.Wanted || n.Change && strings.HasPrefix(a.Digest, migAttempt)) {
		return a
	}
	return nil
}

// migAttempt is the prefix of Attempt.Digest for a change of the MIG mode (phase.MIGAttempt).
const migAttempt = "mig-mode/"

// running reports whether the node is changing or has been granted a change.
func (n *Node) running() bool {
	granted := !n.New && !n.needs() && (n.Current != n.LastGood || n.Changing)
	switch n.Phase {
	case v1alpha1.PhaseUpgrading:
		return !n.New
	case v1alpha1.PhaseFailed, v1alpha1.PhaseBlocked, v1alpha1.PhaseRolledBack, v1alpha1.PhaseAbsent:
		return granted && n.Unseen
	case v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating, v1alpha1.PhaseReady:
		return granted
	default:
		return false
	}
}

// restarting reports whether the node is installing a driver outside of a maintenance, because it was down. It takes a slot of the budget for such
// nodes, and none of a node in service.
func (n *Node) restarting() bool {
	if n.New || n.Current == n.LastGood {
		return false
	}
	switch n.Phase {
	case v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating:
		return true
	case v1alpha1.PhaseFailed:
		return n.Down && n.running()
	case v1alpha1.PhaseReady, v1alpha1.PhaseUpgrading, v1alpha1.PhaseBlocked, v1alpha1.PhaseRolledBack, v1alpha1.PhaseAbsent:
		return false
	default:
		return false
	}
}

// restarts reports whether the node is down and needs another driver to return to service.
func (n *Node) restarts() bool { return n.Down && n.Wanted != n.Current }

// serves reports whether pods can use the node's GPUs and no change has been granted.
func (n *Node) serves() bool {
	if !n.Available || n.running() {
		return false
	}
	inPlace := n.Attempt != nil && n.Attempt.Undisturbed()
	return n.Phase == v1alpha1.PhaseReady || n.Phase == v1alpha1.PhaseRolledBack || n.Phase == v1alpha1.PhaseBlocked && inPlace || n.inUse()
}

// inUse reports whether pods keep the GPUs of a node whose driver's pod cannot start, because its restart has not been granted.
func (n *Node) inUse() bool { return n.Phase == v1alpha1.PhaseFailed && n.DriverRestart && !n.Changing }

// done reports whether the node has its target and is in service.
func (n *Node) done() bool {
	return !n.New && !n.needs() && !n.Changing && n.Current == n.LastGood && n.Phase == v1alpha1.PhaseReady
}

// failed reports whether the target has failed on the node without a later success.
func (n *Node) failed() bool {
	if n.New {
		return false
	}
	if a := n.attempt(); a != nil {
		return !a.Undisturbed()
	}
	unfinished := n.Current != n.LastGood || n.DriverRestart && !n.Unseen
	return !n.needs() && unfinished && n.Phase == v1alpha1.PhaseFailed
}

// exhausted reports whether the node has used all its attempts. A node whose pods could not be drained has not failed.
func (f *Fleet) exhausted(n *Node) bool {
	a := n.attempt()
	if a == nil || a.Undisturbed() {
		return false
	}
	limit := *f.Policy.Attempts
	if f.Resumed != "" && f.resumed() {
		limit *= 2
	}
	return a.Count >= limit
}

// doublings limits how often the delay between two attempts doubles.
const doublings = 6

// rests returns the end of the retry delay after a failure. Without a failure it returns the zero time.
func (f *Fleet) rests(n *Node) time.Time {
	a := n.attempt()
	if a == nil {
		return time.Time{}
	}
	return a.Last.Add(f.Policy.RetryAfter.Duration << min(max(a.Count-1, 0), doublings))
}
