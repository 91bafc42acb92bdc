package rollout

import (
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// needs reports whether the node has not been granted what it is to have.
func (n *Node) needs() bool { return n.Wanted != n.Current || n.Change }

// attempt returns what failed with what is wanted now.
func (n *Node) attempt() *v1alpha1.Attempt {
	a := n.Attempt
	if a != nil && (a.Digest == n.Wanted || n.Change && strings.HasPrefix(a.Digest, migAttempt)) {
		return a
	}
	return nil
}

// migAttempt begins what stands for a driver's digest in the attempt of a change of the MIG mode.
const migAttempt = "mig-mode/"

// running reports whether the node is changing, or has been told to: it takes a slot.
func (n *Node) running() bool {
	switch n.Phase {
	case v1alpha1.PhaseUpgrading:
		return !n.New
	case v1alpha1.PhaseFailed, v1alpha1.PhaseBlocked, v1alpha1.PhaseRolledBack, v1alpha1.PhaseAbsent:
		return false
	case v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating, v1alpha1.PhaseReady:
		return !n.New && !n.needs() && (n.Current != n.LastGood || n.Changing)
	default:
		return false
	}
}

// serves reports whether pods can use the node's GPUs and it has not been told to change.
func (n *Node) serves() bool {
	if !n.Available || n.running() {
		return false
	}
	inPlace := n.Attempt != nil && n.Attempt.Undisturbed()
	return n.Phase == v1alpha1.PhaseReady || n.Phase == v1alpha1.PhaseRolledBack || n.Phase == v1alpha1.PhaseBlocked && inPlace
}

// done reports whether the node has what it is to have and serves.
func (n *Node) done() bool {
	return !n.New && !n.needs() && !n.Changing && n.Current == n.LastGood && n.Phase == v1alpha1.PhaseReady
}

// failed reports whether what is wanted has failed on the node and not succeeded since.
func (n *Node) failed() bool {
	if n.New {
		return false
	}
	if a := n.attempt(); a != nil {
		return !a.Undisturbed()
	}
	return !n.needs() && n.Current != n.LastGood && n.Phase == v1alpha1.PhaseFailed
}

// exhausted reports whether the node has failed as often as it may. One whose pods did not leave has not failed.
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

// doublings is how often the rest between two attempts doubles at most.
const doublings = 6

// rests returns until when the node is left alone after it failed; the past when it is not.
func (f *Fleet) rests(n *Node) time.Time {
	a := n.attempt()
	if a == nil {
		return time.Time{}
	}
	return a.Last.Add(f.Policy.RetryAfter.Duration << min(max(a.Count-1, 0), doublings))
}
