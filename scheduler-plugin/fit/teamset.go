package fit

import (
	"cmp"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// teamSet is a set of whole GPUs for a class, and what is spent with it.
type teamSet struct {
	devices, gpus []int
	distinct      distinctValues
}

// bestTeamSets returns the best sets for the class beside what is taken, at most mostSets, best first.
func (p *planner) bestTeamSets(class int, before distinctValues) []teamSet {
	t := p.teamOfGroup(class)
	k := p.groups[class].perRequest
	if len(t.idle) < k {
		return nil
	}
	if p.tables == nil {
		set, ok := p.teamSetOf(t, class, t.wiring.ChooseByPairs(slices.Clone(t.idle), k), before)
		if !ok {
			return nil
		}
		return []teamSet{set}
	}
	var best []topology.Set
	bySet := map[topology.Set]teamSet{}
	for set := range topology.SetOf(t.idle).Subsets(k) {
		at, _ := slices.BinarySearchFunc(best, set, t.compareSets)
		if at == maxTeamSets {
			continue
		}
		d, ok := p.teamSetOf(t, class, set.Members(), before)
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

// teamOfGroup returns the GPUs that the class can still have.
func (p *planner) teamOfGroup(class int) *team {
	t := &team{nodeView: p.nodeView, device: make([]int, len(p.gpus))}
	for i := range t.device {
		t.device[i] = -1
	}
	for device := range p.groups[class].alternative.Candidates.all {
		g := p.node.Devices[device].GPU
		if t.device[g] < 0 && p.gpus[g].idle && p.allowsDevice(class, device) && !slices.Contains(p.taken, g) {
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

// teamSetOf returns the devices of the GPUs, and false when a distinctAttribute does not allow the set.
func (p *planner) teamSetOf(t *team, class int, gpus []int, before distinctValues) (teamSet, bool) {
	d := teamSet{gpus: gpus, distinct: before}
	for _, g := range gpus {
		var ok bool
		if d.distinct, ok = p.addDistinct(d.distinct, class, t.device[g]); !ok {
			return d, false
		}
		d.devices = append(d.devices, t.device[g])
	}
	return d, true
}

// compareSets returns a negative number when a is the better set, and never zero for different ones.
func (t *team) compareSets(a, b topology.Set) int {
	if c := t.tables.CompareRings(a, b); c != 0 {
		return c
	}
	if c := cmp.Compare(t.valueOf(a), t.valueOf(b)); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(t.tables.ResidualLoss(t.nodeView.idle, a), t.tables.ResidualLoss(t.nodeView.idle, b)), cmp.Compare(a, b))
}
