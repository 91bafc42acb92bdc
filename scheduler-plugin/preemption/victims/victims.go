package victims

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Holder is who holds devices of a node and may be made to give them back.
type Holder struct {
	// Priority is that of its most important pod.
	Priority int32
	// Protected says that a PodDisruptionBudget would be violated.
	Protected bool
	// Held is what it holds.
	Held []Held
}

// Held is a use of one GPU.
type Held struct {
	// GPU is the position of the GPU on the node.
	GPU int
	Use gpu.Use
}

// Selection is who gives way, and what the demand gets then.
type Selection struct {
	// Victims are positions of holders, ascending; none when the demand fits as it is.
	Victims []int
	Choice  fit.Choice
}

// SelectVictims returns which of the holders must give way for the demand, and false when it does not fit even
// without all of them. No holder gives way needlessly: with any one of them back the demand does not fit.
// For a demand of one device the answer is the best there is: least protected holders, then the least
// important ones, then the fewest, then the best choice; for others holders stay in order of importance.
// An error says that a holder does not hold what it is said to.
func SelectVictims(n *fit.Node, req *fit.Requirements, holders []Holder) (Selection, bool, error) {
	var best Selection
	var found bool
	for _, focus := range variantsOf(n, req) {
		e := eviction{node: *n, requirements: focus, holders: holders}
		answer, ok, err := e.selectVictims()
		if err != nil {
			return Selection{}, false, err
		}
		if ok && (!found || compareSelections(holders, answer, best) < 0) {
			best, found = answer, true
		}
	}
	return best, found, nil
}

// variantsOf returns the demands whose answers are compared: for a demand of one device one per device that
// could serve it, else the demand itself.
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

// eviction is one search: everybody leaves, then comes back who can.
type eviction struct {
	node         fit.Node
	requirements *fit.Requirements
	holders      []Holder
}

func (e *eviction) selectVictims() (Selection, bool, error) {
	concerned := e.relevantHolders()
	e.node.GPUs = slices.Clone(e.node.GPUs)
	for _, i := range concerned {
		if err := e.changeHolder(i, gpu.Occupancy.Release); err != nil {
			return Selection{}, false, err
		}
	}
	choice, fits := fit.Choose(&e.node, e.requirements)
	if !fits {
		return Selection{}, false, nil
	}
	answer := Selection{Choice: choice}
	for _, i := range e.byImportance(concerned) {
		if err := e.changeHolder(i, gpu.Occupancy.Take); err != nil {
			return Selection{}, false, err
		}
		if choice, fits := fit.Choose(&e.node, e.requirements); fits {
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

// relevantHolders returns the holders that hold something of a GPU that the demand could use.
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

// changeHolder has the holder take what it holds, or release it.
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

// byImportance returns the holders in the order in which they may stay: protected ones and those of high
// priority first, then those on GPUs that would cost the most to clear, so that whoever gives way does so
// on few GPUs.
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

// compareImportance compares two holders by what their eviction would hurt.
func compareImportance(a, b Holder) int {
	return cmp.Or(cmp.Compare(protected(a), protected(b)), cmp.Compare(a.Priority, b.Priority))
}

func protected(h Holder) int {
	if h.Protected {
		return 1
	}
	return 0
}

// compareSelections is negative when a hurts less than b, or as much and leaves more.
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

// priorities are those of the victims, the highest first. Of two lists the one that ends first hurts
// less.
func priorities(holders []Holder, a Selection) []int32 {
	list := make([]int32, len(a.Victims))
	for n, i := range a.Victims {
		list[n] = holders[i].Priority
	}
	slices.SortFunc(list, func(x, y int32) int { return cmp.Compare(y, x) })
	return list
}
