package fit

import (
	"cmp"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// teamSet is a set of whole GPUs for a group, and the values of distinctAttributes that are used with it.
type teamSet struct {
	devices  []int
	distinct distinctValues
}

// bestTeamSet returns the best set for the group among the GPUs that are not taken, and false if there is none. All subsets of
// the right size are compared: at most 12,870, of 8 out of 16 GPUs. Nodes without tables use the heuristic ChooseByPairs.
func (g *greedy) bestTeamSet(group int) (teamSet, bool) {
	t := g.teamOfGroup(group)
	k := g.groups[group].perRequest
	if len(t.idle) < k {
		return teamSet{}, false
	}
	if g.tables == nil {
		return g.teamSetOf(t, group, t.wiring.ChooseByPairs(slices.Clone(t.idle), k))
	}
	var best topology.Set
	var found teamSet
	for set := range topology.SetOf(t.idle).Subsets(k) {
		if !g.budget.Spend(1 + k/4) {
			break
		}
		if best != 0 && t.compareSets(set, best) >= 0 {
			continue
		}
		if possible, ok := g.teamSetOf(t, group, set.Members()); ok {
			best, found = set, possible
		}
	}
	return found, best != 0
}

// teamOfGroup returns the GPUs that the group can still get.
func (g *greedy) teamOfGroup(group int) *team {
	t := &team{nodeView: g.nodeView, device: make([]int, len(g.gpus))}
	for i := range t.device {
		t.device[i] = -1
	}
	for device := range g.groups[group].alternative.Candidates.all {
		at := g.node.Devices[device].GPU
		if t.device[at] < 0 && g.left.GPUs[at].Occupancy.Idle() && g.allowsDevice(group, device) {
			t.device[at] = device
		}
	}
	for at, device := range t.device {
		if device >= 0 {
			t.idle = append(t.idle, at)
		}
	}
	return t
}

// teamSetOf returns the set of these GPUs, and false if a distinctAttribute excludes it.
func (g *greedy) teamSetOf(t *team, group int, gpus []int) (teamSet, bool) {
	set := teamSet{distinct: g.distinct}
	for _, at := range gpus {
		var ok bool
		if set.distinct, ok = g.addDistinct(set.distinct, group, t.device[at]); !ok {
			return set, false
		}
		set.devices = append(set.devices, t.device[at])
	}
	return set, true
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
