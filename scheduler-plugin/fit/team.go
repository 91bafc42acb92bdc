package fit

import (
	"cmp"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// team is a request for several whole GPUs: all its candidates are whole GPUs.
type team struct {
	*nodeView
	// idle are the GPUs that can be taken, in order, device the device by GPU.
	idle   []int
	device []int
	// alike reports that all GPUs that can be taken are worth the same.
	alike bool
}

// teamOf returns the alternative as a team, and false if not all candidates are whole GPUs.
func (s *nodeView) teamOf(a *Alternative) (team, bool) {
	t := team{nodeView: s, device: make([]int, len(s.gpus)), alike: true}
	for i := range t.device {
		t.device[i] = -1
	}
	for device := range a.Candidates.all {
		d := &s.node.Devices[device]
		if !isWholeGPU(d.Use.Shape) {
			return team{}, false
		}
		if s.gpus[d.GPU].idle && t.device[d.GPU] < 0 {
			t.device[d.GPU] = device
		}
	}
	for g, device := range t.device {
		if device >= 0 {
			t.idle = append(t.idle, g)
			t.alike = t.alike && s.gpus[g].row.value == s.gpus[t.idle[0]].row.value
		}
	}
	return t, true
}

// chooseTeam returns the devices of the best k GPUs.
func (t *team) chooseTeam(k int) ([]int, outcome, bool) {
	if len(t.idle) < k {
		return nil, outcome{}, false
	}
	var chosen []int
	if t.tables != nil {
		chosen = t.bestSet(k)
	} else {
		byValue := slices.Clone(t.idle)
		slices.SortStableFunc(byValue, func(a, b int) int { return cmp.Compare(t.gpus[a].row.value, t.gpus[b].row.value) })
		chosen = t.wiring.ChooseByPairs(byValue, k)
	}
	o := t.outcomeOfTeam(chosen)
	for i, g := range chosen {
		chosen[i] = t.device[g]
	}
	slices.Sort(chosen)
	return chosen, o, true
}

// bestSet returns the best set: the best ring, then the least value, then the smallest loss of residual. If all GPUs
// have the same value and all idle GPUs are candidates, the tables have the answer cached.
func (t *team) bestSet(k int) []int {
	from, best := topology.SetOf(t.idle), topology.Set(0)
	if t.alike && from == t.nodeView.idle {
		return t.tables.BestSet(from, k).Members()
	}
	for set := range from.Subsets(k) {
		if best != 0 && !t.budget.Spend(1) {
			break
		}
		if best == 0 || t.compareSets(set, best) < 0 {
			best = set
		}
	}
	return best.Members()
}

// valueOf returns the value of the GPUs of the set.
func (t *team) valueOf(set topology.Set) int64 {
	var value int64
	for g := range set.All {
		value += int64(t.gpus[g].row.value)
	}
	return value
}

// outcomeOfTeam returns the outcome of taking the GPUs.
func (s *nodeView) outcomeOfTeam(gpus []int) outcome {
	o := outcome{quality: s.wiring.QualityScore(gpus), opened: len(gpus)}
	for _, g := range gpus {
		o.loss += int64(s.gpus[g].row.value)
	}
	o.residual = s.residualLoss(gpus)
	return o
}

// residualLoss returns what the node's residual loses with the GPUs.
func (s *nodeView) residualLoss(gpus []int) int64 {
	if s.tables == nil {
		return 0
	}
	return s.tables.ResidualLoss(s.idle, topology.SetOf(gpus))
}
