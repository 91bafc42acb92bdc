package rollout

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Next decides which nodes may start. The policy must have all defaults set. The decision depends on the fleet alone, so a partial or repeated grant
// of it is harmless.
func Next(f Fleet) Decision {
	s := survey(&f)
	d := Decision{}
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.New && n.needs() {
			d.Grant = append(d.Grant, n.Name)
		}
	}
	if len(s.open) == 0 && s.running == 0 {
		d.Status = s.ended()
		s.closeWaits(&d)
		return d
	}
	s.retarget(&d)
	gate, reason := s.gate()
	if gate != WaitPaused && s.busy == 0 && !slices.ContainsFunc(s.open, func(n *Node) bool { return !n.restarts() }) {
		gate, reason = "", "" // it holds no node
	}
	stage := s.stage(gate)
	s.grant(&d, gate, stage)
	s.closeWaits(&d)
	d.Plan = s.plan(stage)
	d.Status = s.status(stage, or(reason, s.stageMessage(&d, stage)))
	d.After = s.after(stage, gate)
	return d
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// surveyed is a fleet with its nodes classified and counted.
type surveyed struct {
	*Fleet
	id string
	// open are nodes that must change and may be tried, in order. closed are those that are skipped or have failed too often.
	open, closed []*Node
	// total counts nodes that have been in service; out counts those that are not in service now.
	total, out                     int
	done, running, failed, waiting int
	// busy counts the running nodes that take a slot of a node in service, restarting those that install a driver because they were down.
	busy, restarting int
	// proven counts nodes that this rollout has changed and that are in service.
	proven int
	// opens is the time when the maintenance window opens.
	opens time.Time
}

func survey(f *Fleet) *surveyed {
	s := &surveyed{Fleet: f}
	var all, moving []*Node
	for i := range f.Nodes {
		if n := &f.Nodes[i]; !n.New {
			all = append(all, n)
			if n.running() || n.needs() && !n.Skipped && !f.exhausted(n) {
				moving = append(moving, n)
			}
		}
	}
	s.id = identity(moving)
	if continues(f.Status, s.id) {
		s.id = f.Status.Digest
	} else if f.Status != nil && len(moving) > 0 {
		f.Status = nil
	}
	for _, n := range order(all) {
		s.count(n)
	}
	return s
}

// count classifies one node.
func (s *surveyed) count(n *Node) {
	s.total++
	if !n.serves() {
		s.out++
	}
	if n.failed() {
		s.failed++
	}
	if n.restarting() {
		s.restarting++
	} else if n.running() {
		s.busy++
	}
	switch {
	case n.running():
		s.running++
	case n.needs() && (n.Skipped || s.exhausted(n)):
		s.closed = append(s.closed, n)
	case n.needs():
		s.waiting++
		s.open = append(s.open, n)
	case n.done():
		s.done++
		if s.changed(n) {
			s.proven++
		}
	}
}

// share resolves a number, or a percentage of total rounded up.
func share(v *intstr.IntOrString, total int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(v, total, true)
	if err != nil {
		return 0
	}
	return n
}

// ended returns the status of a rollout without remaining changes, or nil if there was no rollout.
func (s *surveyed) ended() *v1alpha1.RolloutStatus {
	if s.Status == nil {
		return nil
	}
	reason := ""
	if s.failed > 0 {
		reason = fmt.Sprintf("%d nodes failed; see their status.reason", s.failed)
	}
	s.id = s.Status.Digest
	return s.status(v1alpha1.RolloutDone, reason)
}

// status returns the rollout status. Since is kept while the stage is unchanged.
func (s *surveyed) status(stage v1alpha1.RolloutStage, reason string) *v1alpha1.RolloutStatus {
	st := &v1alpha1.RolloutStatus{
		Digest: s.id, Stage: stage, Since: metav1.NewTime(s.Now), Reason: reason,
		Done: count(s.done), Running: count(s.running), Failed: count(s.failed), Waiting: count(s.waiting),
	}
	if s.Status != nil && s.Status.Stage == stage {
		st.Since = s.Status.Since
	}
	return st
}

func count(n int) int32 { return int32(n) } //nolint:gosec // nodes of a cluster
