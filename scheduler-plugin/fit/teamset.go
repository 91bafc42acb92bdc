package fit

import (
	"cmp"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// devices is a set of whole GPUs for a class, and what is spent with it.
type devices struct {
	devices, gpus []int
	spent         spent
}

// candidates returns the best sets for the class beside what is taken, at most mostSets, best first.
func (p *planner) candidates(class int, before spent) []devices {
	t := p.team(class)
	k := p.classes[class].each
	if len(t.idle) < k {
		return nil
	}
	if p.tables == nil {
		set, ok := p.devicesOf(t, class, t.wiring.ChooseByPairs(slices.Clone(t.idle), k), before)
		if !ok {
			return nil
		}
		return []devices{set}
	}
	var best []topology.Set
	bySet := map[topology.Set]devices{}
	for set := range topology.SetOf(t.idle).Subsets(k) {
		at, _ := slices.BinarySearchFunc(best, set, t.compare)
		if at == mostSets {
			continue
		}
		d, ok := p.devicesOf(t, class, set.Members(), before)
		if !ok {
			continue
		}
		bySet[set] = d
		best = slices.Insert(best, at, set)
		best = best[:min(len(best), mostSets)]
	}
	all := make([]devices, len(best))
	for i, set := range best {
		all[i] = bySet[set]
	}
	return all
}

// team returns the GPUs that the class can still have.
func (p *planner) team(class int) *team {
	t := &team{sight: p.sight, device: make([]int, len(p.gpus))}
	for i := range t.device {
		t.device[i] = -1
	}
	for device := range p.classes[class].alternative.Candidates.all {
		g := p.node.Devices[device].GPU
		if t.device[g] < 0 && p.gpus[g].idle && p.allowed(class, device) && !slices.Contains(p.taken, g) {
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

// devicesOf returns the devices of the GPUs, and false when a distinctAttribute does not allow the set.
func (p *planner) devicesOf(t *team, class int, gpus []int, before spent) (devices, bool) {
	d := devices{gpus: gpus, spent: before}
	for _, g := range gpus {
		var ok bool
		if d.spent, ok = p.spend(d.spent, class, t.device[g]); !ok {
			return d, false
		}
		d.devices = append(d.devices, t.device[g])
	}
	return d, true
}

// compare returns a negative number when a is the better set, and never zero for different ones.
func (t *team) compare(a, b topology.Set) int {
	if c := t.tables.CompareRings(a, b); c != 0 {
		return c
	}
	if c := cmp.Compare(t.value(a), t.value(b)); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(t.tables.ResidualLoss(t.sight.idle, a), t.tables.ResidualLoss(t.sight.idle, b)), cmp.Compare(a, b))
}
