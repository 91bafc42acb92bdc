package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// gate returns the reason that keeps all nodes from starting, and its message. Empty means that the rollout may proceed.
func (s *surveyed) gate() (reason, message string) {
	may := share(s.Policy.FailureBudget, s.total)
	switch {
	case s.Paused:
		return WaitPaused, "paused by the annotation " + v1alpha1.AnnotationPause
	case s.Policy.Auto != nil && !*s.Policy.Auto && !s.resumed():
		return WaitManual, fmt.Sprintf("upgrade.auto is false; to start, set the annotation %s to %s", v1alpha1.AnnotationResume, s.id)
	case s.failed > may && !s.resumed():
		return WaitFailures, fmt.Sprintf("%d nodes failed, more than the limit %d (%s); to resume, set the annotation %s to %s, or change the driver",
			s.failed, may, strings.Join(s.failures(), ", "), v1alpha1.AnnotationResume, s.id)
	}
	open, opens, err := window(s.Policy.Window, s.Now)
	switch {
	case err != nil:
		return WaitWindow, err.Error()
	case open:
		return "", ""
	case opens.IsZero():
		return WaitWindow, "the maintenance window never opens"
	default:
		s.opens = opens
		return WaitWindow, "the maintenance window opens at " + opens.Format(time.RFC3339)
	}
}

// named is the maximum number of nodes in a message.
const named = 5

// failures returns the first failed nodes with their reasons.
func (s *surveyed) failures() []string {
	var list []string
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.failed() || len(list) == named {
			continue
		}
		reason := string(n.Phase)
		if a := n.attempt(); a != nil {
			reason = a.Reason
		}
		list = append(list, n.Name+": "+reason)
	}
	slices.Sort(list)
	return list
}

// canaries returns the number of canaries, limited to the nodes that can change.
func (s *surveyed) canaries() int {
	return min(share(s.Policy.Canary, s.total), s.proven+s.running+len(s.open))
}

// changed reports whether this rollout changed the node. Earlier MIG modes and pods are not recorded: a node that became Ready since the
// canary stage counts.
func (s *surveyed) changed(n *Node) bool {
	aims := strings.Split(s.id, "+")
	if slices.Contains(aims, v1alpha1.DriverLabelValue(n.Wanted)) {
		return true
	}
	return slices.ContainsFunc(aims, keepsDriver) && s.Status != nil && s.Status.Stage == v1alpha1.RolloutCanary && !n.Since.Before(s.Status.Since.Time)
}

// stage returns the stage of the rollout, behind a gate or not. After the soak, a failure of a canary counts like any other failure.
func (s *surveyed) stage(gate string) v1alpha1.RolloutStage {
	var before v1alpha1.RolloutStage
	if s.Status != nil {
		before = s.Status.Stage
	}
	first := s.canaries()
	watching := before == v1alpha1.RolloutSoak && !slices.ContainsFunc(strings.Split(s.id, "+"), changesDriver)
	switch {
	case gate == WaitPaused || gate == WaitManual || gate == WaitFailures:
		return v1alpha1.RolloutPaused
	case first == 0 || before == v1alpha1.RolloutWaves:
		return v1alpha1.RolloutWaves
	case s.proven < first && !watching:
		return v1alpha1.RolloutCanary
	case s.Now.Before(s.soaked(first)):
		return v1alpha1.RolloutSoak
	default:
		return v1alpha1.RolloutWaves
	}
}

// soaked returns the time at which the canaries have been Ready for the soak time.
func (s *surveyed) soaked(first int) time.Time {
	soak := s.Policy.Soak.Duration
	var since []time.Time
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.done() && s.changed(n) {
			since = append(since, n.Since)
		}
	}
	if len(since) < first {
		return s.Status.Since.Add(soak)
	}
	slices.SortFunc(since, time.Time.Compare)
	return since[first-1].Add(soak)
}

// stageMessage returns the message for the present stage.
func (s *surveyed) stageMessage(d *Decision, stage v1alpha1.RolloutStage) string {
	if stage == v1alpha1.RolloutSoak {
		return "the canaries soak until " + s.soaked(s.canaries()).Format(time.RFC3339)
	}
	if len(d.Waits) == 0 {
		return ""
	}
	by := map[string]int{}
	for _, w := range d.Waits {
		by[w.Reason]++
	}
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		list = append(list, fmt.Sprintf("%d %s", by[reason], reason))
	}
	return "waiting nodes: " + strings.Join(list, ", ")
}

// after returns the delay until the next change that depends on time alone.
func (s *surveyed) after(stage v1alpha1.RolloutStage, gate string) time.Duration {
	var first time.Time
	sooner := func(t time.Time) {
		if t.After(s.Now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if stage == v1alpha1.RolloutSoak {
		sooner(s.soaked(s.canaries()))
	}
	if gate == WaitWindow {
		sooner(s.opens)
	}
	for _, n := range s.open {
		if gate == "" || n.restarts() && gate != WaitPaused {
			sooner(s.rests(n))
		}
	}
	if first.IsZero() {
		return 0
	}
	return first.Sub(s.Now)
}
