package fit

import (
	"cmp"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// teamSet is a set of whole GPUs for a group, and the values of distinctAttributes that are used with it.
type teamSet struct {
	devices, gpus []int
	distinct      distinctValues
}

// bestTeamSets returns the best sets for the group among the GPUs that are not taken, at most maxTeamSets, the best one
// first.
//
// All subsets of the right size are enumerated, and the best ones kept by insertion into a sorted list: at most 12,870
// subsets, of 8 out of 16 GPUs. Nodes without tables get one set, by the heuristic ChooseByPairs.
func (p *planner) bestTeamSets(group int, before distinctValues) []teamSet {
	t := p.teamOfGroup(group)
	k := p.groups[group].perRequest
	if len(t.idle) < k {
		return nil
	}
	if p.tables == nil {
		set, ok := p.teamSetOf(t, group, t.wiring.ChooseByPairs(slices.Clone(t.idle), k), before)
		if !ok {
			return nil
		}
		return []teamSet{set}
	}
	var best []topology.Set
	bySet := map[topology.Set]teamSet{}
	for set := range topology.SetOf(t.idle).Subsets(k) {
		if !p.budget.Spend(1 + k/4) {
			break
		}
		at, _ := slices.BinarySearchFunc(best, set, t.compareSets)
		if at == maxTeamSets {
			continue
		}
		d, ok := p.teamSetOf(t, group, set.Members(), before)
		if !ok {
			continue
		}
		bySet[set] = d
		best = slices.Insert(best, at, set)
		best = best[:min(len(best), maxTeamSets)]
	}
	all := make([]teamSet, len(best))
	for i, set := range best {
		all[i] = bySet[set]
	}
	return all
}

// teamOfGroup returns the GPUs that the group can still get.
func (p *planner) teamOfGroup(group int) *team {
	t := &team{nodeView: p.nodeView, device: make([]int, len(p.gpus))}
	for i := range t.device {
		t.device[i] = -1
	}
	for device := range p.groups[group].alternative.Candidates.all {
		g := p.node.Devices[device].GPU
		if t.device[g] < 0 && p.gpus[g].idle && p.allowsDevice(group, device) && !slices.Contains(p.taken, g) {
			t.device[g] = device
		}
	}
	for g, device := range t.device {
		if device >= 0 {
			t.idle = append(t.idle, g)
		}
	}
	return t
}

// teamSetOf returns the set of these GPUs, and false if a distinctAttribute excludes it.
func (p *planner) teamSetOf(t *team, group int, gpus []int, before distinctValues) (teamSet, bool) {
	d := teamSet{gpus: gpus, distinct: before}
	for _, g := range gpus {
		var ok bool
		if d.distinct, ok = p.addDistinct(d.distinct, group, t.device[g]); !ok {
			return d, false
		}
		d.devices = append(d.devices, t.device[g])
	}
	return d, true
}

// compareSets returns a negative number if a is the better set: the better ring, then the lower value, then the smaller
// loss of residual. It never returns zero for different sets.
func (t *team) compareSets(a, b topology.Set) int {
	if c := t.tables.CompareRings(a, b); c != 0 {
		return c
	}
	if c := cmp.Compare(t.valueOf(a), t.valueOf(b)); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(t.tables.ResidualLoss(t.nodeView.idle, a), t.tables.ResidualLoss(t.nodeView.idle, b)), cmp.Compare(a, b))
}
