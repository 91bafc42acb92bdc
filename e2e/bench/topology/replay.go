package main

import "github.com/tessera-gpu/tessera/e2e/bench/arrivals"

// teams are the numbers of GPUs of demands, shares their frequencies.
func teams() []int      { return []int{1, 2, 4, 8} }
func shares() []float64 { return []float64{.40, .25, .20, .15} }

// policy is a way to choose GPUs and a way to choose the node.
type policy struct {
	name string
	chooser
	cost func(free set, k int) int64
}

// tally is the result of streams after their warm-ups, by position of the team.
type tally struct {
	offered, accepted [4]int
	// quality is summed over the accepted.
	quality [4]float64
}

// acceptance returns the share of the requested GPUs that were allocated.
func (t tally) acceptance() float64 {
	offered, accepted := 0, 0
	for i, k := range teams() {
		offered += k * t.offered[i]
		accepted += k * t.accepted[i]
	}
	return float64(accepted) / float64(max(1, offered))
}

// of returns the mean quality of the teams of a size.
func (t tally) of(team int) float64 { return t.quality[team] / float64(max(1, t.accepted[team])) }

func (t tally) plus(other tally) tally {
	for i := range t.offered {
		t.offered[i] += other.offered[i]
		t.accepted[i] += other.accepted[i]
		t.quality[i] += other.quality[i]
	}
	return t
}

// fleet is a number of equal nodes under a policy.
type fleet struct {
	policy policy
	free   []set
	// bids caches the bids of nodes: a bid depends on nothing but the free GPUs.
	bids map[question]bid
}

type question struct {
	free set
	team int
}

type bid struct {
	taken set
	cost  int64
	ok    bool
}

func newFleet(p policy, nodes, gpus int) *fleet {
	f := &fleet{policy: p, free: make([]set, nodes), bids: map[question]bid{}}
	for i := range f.free {
		f.free[i] = 1<<gpus - 1
	}
	return f
}

// bid returns the bid of a node with these free GPUs.
func (f *fleet) bid(q question) bid {
	b, known := f.bids[q]
	if !known {
		k := teams()[q.team]
		if b.taken, b.ok = f.policy.choose(q.free, k); b.ok {
			b.cost = f.policy.cost(q.free, k)
		}
		f.bids[q] = b
	}
	return b
}

// place places a team; the node is negative when none has room.
func (f *fleet) place(team int) (node int, taken set) {
	node = -1
	var best bid
	for i, free := range f.free {
		if b := f.bid(question{free, team}); b.ok && (node < 0 || b.cost < best.cost) {
			node, best = i, b
		}
	}
	if node >= 0 {
		f.free[node] &^= best.taken
	}
	return node, best.taken
}

// replay runs the stream through the fleet. Refused demands are dropped.
func (f *fleet) replay(stream *arrivals.Stream, j *judge) tally {
	type held struct {
		node  int
		taken set
	}
	var t tally
	all := make([]held, len(stream.Demands))
	for _, step := range stream.Steps {
		h := &all[step.Demand]
		if step.Leaves {
			if h.node >= 0 {
				f.free[h.node] |= h.taken
			}
			continue
		}
		team := stream.Demands[step.Demand].Kind
		h.node, h.taken = f.place(team)
		if !stream.Counts(step.Demand) {
			continue
		}
		t.offered[team]++
		if h.node >= 0 {
			t.accepted[team]++
			t.quality[team] += j.quality(h.taken)
		}
	}
	return t
}
