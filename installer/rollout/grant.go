package rollout

import (
	"math"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// room is how many more nodes may start, per limit.
type room struct{ canary, parallel, out, restart int }

func (s *surveyed) room(stage v1alpha1.RolloutStage) room {
	r := room{canary: math.MaxInt, parallel: math.MaxInt, out: share(s.Policy.MaxUnavailable, s.total) - s.out, restart: s.restarts() - s.restarting}
	if stage == v1alpha1.RolloutCanary {
		r.canary = s.canaries() - s.proven - s.busy
	}
	if limit := *s.Policy.MaxParallel; limit > 0 {
		r.parallel = int(limit) - s.busy
	}
	return r
}

// minRestarts and restartShare limit how many nodes that are down install a driver at the same time: 16 nodes, or a tenth of a larger fleet. Each of
// them pulls an image of about 1 GB and perhaps downloads packages. When a whole fleet boots into another kernel, 16 nodes keep a registry of one
// machine usable, and a tenth brings a fleet of any size back within ten installations.
const (
	minRestarts  = 16
	restartShare = 10
)

func (s *surveyed) restarts() int { return max(minRestarts, s.total/restartShare) }

// grant selects the nodes that may start within the limits and records the reason for each of the others.
func (s *surveyed) grant(d *Decision, gate string, stage v1alpha1.RolloutStage) {
	r := s.room(stage)
	for _, n := range s.open {
		restarts, reason := n.restarts(), s.refuses(n, r, gate, stage)
		if restarts {
			reason = s.refusesRestart(n, r, gate)
		}
		if reason != "" {
			d.Waits = append(d.Waits, Wait{n.Name, reason})
			continue
		}
		if restarts {
			d.Restart = append(d.Restart, n.Name)
			r.restart--
			continue
		}
		d.Grant = append(d.Grant, n.Name)
		r.canary--
		r.parallel--
		if n.serves() {
			r.out--
		}
	}
}

// refuses returns the reason why a node may not start now, or "".
func (s *surveyed) refuses(n *Node, r room, gate string, stage v1alpha1.RolloutStage) string {
	switch {
	case gate != "":
		return gate
	case !n.Available:
		return WaitNode
	case s.rests(n).After(s.Now):
		return WaitRetry
	case stage == v1alpha1.RolloutSoak:
		return WaitSoak
	case r.canary <= 0:
		return WaitCanary
	case r.parallel <= 0:
		return WaitParallel
	case n.serves() && r.out <= 0:
		return WaitUnavailable
	default:
		return ""
	}
}

// refusesRestart returns the reason why a node that is down may not start now, or "". The limits that protect pods do not apply: it has none that
// could lose a GPU. A pause does, because a person requested it.
func (s *surveyed) refusesRestart(n *Node, r room, gate string) string {
	switch {
	case gate == WaitPaused:
		return gate
	case !n.Available:
		return WaitNode
	case s.rests(n).After(s.Now):
		return WaitRetry
	case r.restart <= 0:
		return WaitRestart
	default:
		return ""
	}
}

// retarget grants the latest target to nodes that are already changing, because they are out of service anyway. Nodes that roll back are skipped.
// While a person or the failure budget holds the rollout, only a return to the last good driver is granted.
func (s *surveyed) retarget(d *Decision) {
	gate, _ := s.gate()
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.running() || !n.needs() || n.attempt() != nil || !n.Available || n.Skipped {
			continue
		}
		if gate == "" || gate == WaitWindow || n.Wanted == n.LastGood {
			d.Grant = append(d.Grant, n.Name)
		}
	}
}

// closeWaits records why skipped and exhausted nodes wait.
func (s *surveyed) closeWaits(d *Decision) {
	for _, n := range s.closed {
		reason := WaitFailed
		if n.Skipped {
			reason = WaitSkipped
		}
		d.Waits = append(d.Waits, Wait{n.Name, reason})
	}
}

// Limits of a published plan.
const (
	maxWaves = 16
	maxNames = 64
)

// plan returns all changes that have not started: the nodes that are down, the canaries, then waves of as many nodes as may change at the same time.
func (s *surveyed) plan(stage v1alpha1.RolloutStage) v1alpha1.Plan {
	plan := v1alpha1.Plan{Nodes: count(len(s.open))}
	var left, down []*Node
	for _, n := range s.open {
		if n.restarts() {
			down = append(down, n)
			continue
		}
		left = append(left, n)
		plan.Pods += n.Pods
	}
	together := max(1, share(s.Policy.MaxUnavailable, s.total))
	if limit := int(*s.Policy.MaxParallel); limit > 0 {
		together = min(together, limit)
	}
	for len(down) > 0 && len(plan.Waves) < maxWaves {
		down = wave(&plan, down, s.restarts())
	}
	if stage != v1alpha1.RolloutWaves {
		left = wave(&plan, left, s.canaries()-s.proven-s.busy)
	}
	for len(left) > 0 && len(plan.Waves) < maxWaves {
		left = wave(&plan, left, together)
	}
	return plan
}

// wave moves the first nodes to a wave of the plan and returns the others.
func wave(plan *v1alpha1.Plan, nodes []*Node, size int) []*Node {
	size = min(size, len(nodes))
	if size <= 0 {
		return nodes
	}
	w := v1alpha1.Wave{Count: count(size)}
	for _, n := range nodes[:min(size, maxNames)] {
		w.Nodes = append(w.Nodes, n.Name)
	}
	plan.Waves = append(plan.Waves, w)
	return nodes[size:]
}
