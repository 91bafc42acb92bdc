package victims

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Holder is an owner of devices of a node that may be evicted.
type Holder struct {
	// Priority is the highest priority of its pods.
	Priority int32
	// Protected is true if its eviction would violate a PodDisruptionBudget.
	Protected bool
	// Held are the uses that it holds.
	Held []Held
}

// Held is a use of one GPU.
type Held struct {
	// GPU is the position of the GPU on the node.
	GPU int
	Use gpu.Use
}

// Selection is which holders are evicted, and what the pod gets then.
type Selection struct {
	// Victims are positions of holders, ascending; none if the requirements fit without an eviction.
	Victims []int
	Choice  fit.Choice
}

// SelectVictims returns which of the holders must be evicted for the requirements, and false if they do not fit even
// without all of them. The selection is minimal: with any one of the victims back, the requirements do not fit. For one
// device it is optimal: fewest protected holders, then lowest priorities, then fewest holders, then the best choice of
// devices. The steps of all searches are taken from the budget; it returns false if the budget is exceeded. An error
// means that a holder does not hold what it should.
func SelectVictims(n *fit.Node, req *fit.Requirements, holders []Holder, b *fit.Budget) (Selection, bool, error) {
	all, err := Selections(n, req, holders, b)
	if err != nil || len(all) == 0 || b.Exceeded() {
		return Selection{}, false, err
	}
	return slices.MinFunc(all, func(x, y Selection) int { return compareSelections(holders, x, y) }), true, nil
}

// Selections returns minimal selections: for one device one for each device that the pod could get, otherwise at most one.
func Selections(n *fit.Node, req *fit.Requirements, holders []Holder, b *fit.Budget) ([]Selection, error) {
	var all []Selection
	for _, focus := range variantsOf(n, req) {
		e := eviction{node: *n, requirements: focus, holders: holders, budget: b}
		answer, ok, err := e.selectVictims()
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, answer)
		}
	}
	return all, nil
}

// variantsOf returns the requirements whose selections are compared: for one device, one variant for each candidate
// device; otherwise the requirements themselves.
func variantsOf(n *fit.Node, req *fit.Requirements) []*fit.Requirements {
	if len(req.Requests) != 1 || len(req.Requests[0].Alternatives) != 1 || req.Requests[0].Alternatives[0].Count != 1 {
		return []*fit.Requirements{req}
	}
	var all []*fit.Requirements
	for device := range n.Devices {
		if !req.Requests[0].Alternatives[0].Candidates.Has(device) {
			continue
		}
		only := req.Requests[0].Alternatives[0]
		only.Candidates = fit.NewSet(len(n.Devices))
		only.Candidates.Add(device)
		request := req.Requests[0]
		request.Alternatives = []fit.Alternative{only}
		all = append(all, &fit.Requirements{Requests: []fit.Request{request}, Constraints: req.Constraints})
	}
	return all
}

// eviction is one search, as kube-scheduler's own preemption does it: all holders are evicted, then reprieved one by
// one, the most important first, as long as the requirements still fit. A holder that cannot be reprieved is a victim.
//
// The result is minimal, since occupancies only grow: a holder that did not fit back does not fit back later. It
// depends on the order for several devices. For one fixed device it does not, which is why variantsOf fixes it.
//
// Example: the pod needs slices 0 to 3 of a GPU. Holders A (priority 5, slice 0), B (priority 1, slice 2), C (priority
// 1, slice 5). Without all three the pod fits. A does not fit back, B neither, C does: the victims are A and B.
type eviction struct {
	node         fit.Node
	requirements *fit.Requirements
	holders      []Holder
	budget       *fit.Budget
}

func (e *eviction) selectVictims() (Selection, bool, error) {
	concerned := e.relevantHolders()
	e.node.GPUs = slices.Clone(e.node.GPUs)
	for _, i := range concerned {
		if err := e.changeHolder(i, gpu.Occupancy.Release); err != nil {
			return Selection{}, false, err
		}
	}
	choice, fits := fit.Choose(&e.node, e.requirements, e.budget)
	if !fits {
		return Selection{}, false, nil
	}
	answer := Selection{Choice: choice}
	for _, i := range e.byImportance(concerned) {
		if err := e.changeHolder(i, gpu.Occupancy.Take); err != nil {
			return Selection{}, false, err
		}
		if choice, fits := fit.Choose(&e.node, e.requirements, e.budget); fits {
			answer.Choice = choice
			continue
		}
		if err := e.changeHolder(i, gpu.Occupancy.Release); err != nil {
			return Selection{}, false, err
		}
		answer.Victims = append(answer.Victims, i)
	}
	slices.Sort(answer.Victims)
	return answer, true, nil
}

// relevantHolders returns the holders with something on a GPU that a candidate device uses.
func (e *eviction) relevantHolders() []int {
	useful := make([]bool, len(e.node.GPUs))
	for _, request := range e.requirements.Requests {
		for _, a := range request.Alternatives {
			for device, d := range e.node.Devices {
				useful[d.GPU] = useful[d.GPU] || a.Candidates.Has(device)
			}
		}
	}
	var concerned []int
	for i, h := range e.holders {
		if slices.ContainsFunc(h.Held, func(held Held) bool { return useful[held.GPU] }) {
			concerned = append(concerned, i)
		}
	}
	return concerned
}

// changeHolder applies Take or Release to everything that the holder holds.
func (e *eviction) changeHolder(holder int, change func(gpu.Occupancy, gpu.Use) (gpu.Occupancy, error)) error {
	for _, held := range e.holders[holder].Held {
		g := &e.node.GPUs[held.GPU]
		after, err := change(g.Occupancy, held.Use)
		if err != nil {
			return fmt.Errorf("evict from %s: %w", g.Name, err)
		}
		g.Occupancy = after
	}
	return nil
}

// byImportance returns the holders in the order in which they are reprieved: protected ones first, then by priority,
// then those on the GPUs with the most holders, so that victims are on few GPUs.
func (e *eviction) byImportance(holders []int) []int {
	burden := make([]int, len(e.node.GPUs))
	for _, i := range holders {
		for _, held := range e.holders[i].Held {
			burden[held.GPU]++
		}
	}
	heaviest := func(i int) int {
		most := 0
		for _, held := range e.holders[i].Held {
			most = max(most, burden[held.GPU])
		}
		return most
	}
	ordered := slices.Clone(holders)
	slices.SortStableFunc(ordered, func(a, b int) int {
		return cmp.Or(compareImportance(e.holders[b], e.holders[a]), cmp.Compare(heaviest(b), heaviest(a)))
	})
	return ordered
}

// compareImportance compares two holders by the damage of their eviction.
func compareImportance(a, b Holder) int {
	return cmp.Or(cmp.Compare(protected(a), protected(b)), cmp.Compare(a.Priority, b.Priority))
}

func protected(h Holder) int {
	if h.Protected {
		return 1
	}
	return 0
}

// compareSelections returns a negative number if a does less damage, or equal damage and leaves more for later pods.
func compareSelections(holders []Holder, a, b Selection) int {
	return cmp.Or(
		cmp.Compare(violations(holders, a), violations(holders, b)),
		slices.Compare(priorities(holders, a), priorities(holders, b)),
		cmp.Compare(b.Choice.Score, a.Choice.Score),
	)
}

func violations(holders []Holder, a Selection) int {
	n := 0
	for _, i := range a.Victims {
		n += protected(holders[i])
	}
	return n
}

// priorities returns the priorities of the victims, the highest first. A prefix of another list is less damage.
func priorities(holders []Holder, a Selection) []int32 {
	list := make([]int32, len(a.Victims))
	for n, i := range a.Victims {
		list[n] = holders[i].Priority
	}
	slices.SortFunc(list, func(x, y int32) int { return cmp.Compare(y, x) })
	return list
}
