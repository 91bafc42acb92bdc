package defrag

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption/victims"
)

// Find returns the cheapest plan with at most so many moves, and false if there is none. A plan without moves means that the pod fits. If the refused pod and all
// holders require one device each, the plan is the cheapest one of all; otherwise, of those whose holders preemption would choose. The steps are taken from the
// budget; if it is exceeded (Budget.Exceeded), there may be a plan that was not found, or a cheaper one. An error means that a holder does not hold what it
// should.
func Find(p *Problem, moves int, b *fit.Budget) (Plan, bool, error) {
	s := search{Problem: p, budget: b, nodes: slices.Clone(p.Nodes), moving: make([]bool, len(p.Holders)), byNode: map[int][]int{}}
	for i, h := range p.Holders {
		s.byNode[h.Node] = append(s.byNode[h.Node], i)
	}
	return s.roomFor(&p.Refused, moves, nil)
}

// search is a depth-first search. The room for a pod is made by holders that leave, and the room for each of these by the same search with fewer moves:
//
//	refused pod needs slices 0-3 of GPU 2, where A has slice 1: A leaves (1 move), and fits elsewhere, or
//	A fits only where B is: B leaves (2 moves) and fits elsewhere.
//
// Each level tries the holders in the order of their cost, so that the first that succeeds is the cheapest, and a level ends at the cost of the best known plan.
type search struct {
	*Problem
	budget *fit.Budget
	// nodes have what is held at this point of the search, without the holders that are moving.
	nodes  []fit.Node
	moving []bool
	byNode map[int][]int
}

// attempt is a way to make room on a node: holders that leave, and what the pod gets then.
type attempt struct {
	node     int
	required *fit.Requirements
	choice   fit.Choice
	leaving  []int
	cost     Cost
}

// roomFor returns the cheapest plan for a pod with at most so many moves, which costs less than limit if that is not nil.
func (s *search) roomFor(d *Demand, moves int, limit *Cost) (Plan, bool, error) {
	if direct := s.direct(d); direct != nil {
		return Plan{Node: direct.node, Choice: direct.choice}, true, nil
	}
	if moves == 0 {
		return Plan{}, false, nil
	}
	attempts, err := s.attempts(d, moves)
	if err != nil {
		return Plan{}, false, err
	}
	var best Plan
	found := false
	for i := range attempts {
		a := &attempts[i]
		if limit != nil && a.cost.compare(*limit) >= 0 || s.budget.Exceeded() {
			break
		}
		plan, ok, err := s.try(a, moves, limit)
		if err != nil {
			return Plan{}, false, err
		}
		if ok {
			best, found, limit = plan, true, &plan.Cost
		}
	}
	return best, found, nil
}

// direct returns the best devices that are free for a pod; nil if there are none.
func (s *search) direct(d *Demand) *attempt {
	var best *attempt
	for i := range s.nodes {
		required := d.Requires(i)
		if required == nil {
			continue
		}
		if choice, fits := fit.Choose(&s.nodes[i], required, s.budget); fits && (best == nil || choice.Score > best.choice.Score) && d.Runs(i) {
			best = &attempt{node: i, required: required, choice: choice}
		}
	}
	return best
}

// attempts returns the ways to make room for a pod of which at most so many holders leave, the cheapest first; of equal ones those that leave the most for later
// pods.
func (s *search) attempts(d *Demand, moves int) ([]attempt, error) {
	var all []attempt
	for i := range s.nodes {
		here, err := s.attemptsOn(i, d, moves)
		if err != nil {
			return nil, err
		}
		if len(here) > 0 && d.Runs(i) {
			all = append(all, here...)
		}
	}
	slices.SortStableFunc(all, func(x, y attempt) int {
		return cmp.Or(x.cost.compare(y.cost), cmp.Compare(y.choice.Score, x.choice.Score))
	})
	return all, nil
}

// attemptsOn returns the attempts on one node.
func (s *search) attemptsOn(node int, d *Demand, moves int) ([]attempt, error) {
	var here []int
	var holders []victims.Holder
	for _, h := range s.byNode[node] {
		if !s.moving[h] {
			here = append(here, h)
			holders = append(holders, victims.Holder{Priority: s.Holders[h].Cost.Priorities[0], Held: s.Holders[h].Held})
		}
	}
	required := d.Requires(node)
	if required == nil || len(here) == 0 {
		return nil, nil
	}
	selections, err := victims.Selections(&s.nodes[node], required, holders, s.budget)
	if err != nil {
		return nil, err
	}
	var all []attempt
	for _, selected := range selections {
		if n := len(selected.Victims); n == 0 || n > moves {
			continue
		}
		a := attempt{node: node, required: required, choice: selected.Choice}
		for _, v := range selected.Victims {
			a.leaving = append(a.leaving, here[v])
			a.cost = a.cost.plus(s.Holders[here[v]].Cost)
		}
		all = append(all, a)
	}
	return all, nil
}

// try lets the holders of an attempt leave and the pod take its devices, and finds destinations for them.
func (s *search) try(a *attempt, moves int, limit *Cost) (Plan, bool, error) {
	undo, err := s.apply(a)
	if err != nil {
		return Plan{}, false, err
	}
	defer undo()
	plan := Plan{Node: a.node, Choice: a.choice, Cost: a.cost}
	if len(a.leaving) == 1 {
		rest, ok, err := s.roomFor(&s.Holders[a.leaving[0]].Demand, moves-1, nil)
		if !ok || err != nil {
			return Plan{}, false, err
		}
		plan.Cost = plan.Cost.plus(rest.Cost)
		plan.Moves = append([]Move{{a.leaving[0], rest.Node, rest.Choice}}, rest.Moves...)
		return plan, limit == nil || plan.Cost.compare(*limit) < 0, nil
	}
	plan.Moves, err = s.placeAll(a.leaving)
	return plan, plan.Moves != nil, err
}

// apply releases what the holders have and takes the devices of the pod.
func (s *search) apply(a *attempt) (undo func(), err error) {
	before := s.nodes[a.node]
	undo = func() {
		s.nodes[a.node] = before
		for _, h := range a.leaving {
			s.moving[h] = false
		}
	}
	after := before
	after.GPUs = slices.Clone(before.GPUs)
	for _, h := range a.leaving {
		s.moving[h] = true
		for _, held := range s.Holders[h].Held {
			g := &after.GPUs[held.GPU]
			if g.Occupancy, err = gpu.Occupancy.Release(g.Occupancy, held.Use); err != nil {
				undo()
				return nil, fmt.Errorf("move from %s: %w", g.Name, err)
			}
		}
	}
	if s.nodes[a.node], err = a.choice.Take(after, a.required); err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// placeAll finds free devices for all holders, each without further moves; nil if there are none.
func (s *search) placeAll(holders []int) ([]Move, error) {
	if len(holders) == 0 {
		return []Move{}, nil
	}
	first := s.direct(&s.Holders[holders[0]].Demand)
	if slices.ContainsFunc(holders, func(h int) bool { return s.direct(&s.Holders[h].Demand) == nil }) {
		return nil, nil
	}
	if moves, err := s.placeAfter(first, holders); moves != nil || err != nil || len(holders) == 1 {
		return moves, err
	}
	return s.placeElsewhere(holders)
}

// placeElsewhere is placeAll with any devices for the first holder: the best ones for it can be the only ones for another.
func (s *search) placeElsewhere(holders []int) ([]Move, error) {
	d := &s.Holders[holders[0]].Demand
	for i := range s.nodes {
		required := d.Requires(i)
		if required == nil || !d.Runs(i) {
			continue
		}
		selections, err := victims.Selections(&s.nodes[i], required, nil, s.budget)
		if err != nil {
			return nil, err
		}
		for _, selected := range selections {
			if moves, err := s.placeAfter(&attempt{node: i, required: required, choice: selected.Choice}, holders); moves != nil || err != nil {
				return moves, err
			}
		}
	}
	return nil, nil
}

// placeAfter places the first holder on the devices, and finds some for the others.
func (s *search) placeAfter(first *attempt, holders []int) ([]Move, error) {
	undo, err := s.apply(first)
	if err != nil {
		return nil, err
	}
	defer undo()
	rest, err := s.placeAll(holders[1:])
	if rest == nil || err != nil {
		return nil, err
	}
	return append([]Move{{holders[0], first.node, first.choice}}, rest...), nil
}
