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

// Answer is who gives way, and what the demand gets then.
type Answer struct {
	// Victims are positions of holders, ascending; none when the demand fits as it is.
	Victims []int
	Choice  fit.Choice
}

// Select returns which of the holders must give way for the demand, and false when it does not fit even
// without all of them. No holder gives way needlessly: with any one of them back the demand does not fit.
// For a demand of one device the answer is the best there is: least protected holders, then the least
// important ones, then the fewest, then the best choice; for others holders stay in order of importance.
// An error says that a holder does not hold what it is said to.
func Select(n *fit.Node, d *fit.Demand, holders []Holder) (Answer, bool, error) {
	var best Answer
	var found bool
	for _, focus := range focuses(n, d) {
		e := eviction{node: *n, demand: focus, holders: holders}
		answer, ok, err := e.run()
		if err != nil {
			return Answer{}, false, err
		}
		if ok && (!found || compare(holders, answer, best) < 0) {
			best, found = answer, true
		}
	}
	return best, found, nil
}

// focuses returns the demands whose answers are compared: for a demand of one device one per device that
// could serve it, else the demand itself.
func focuses(n *fit.Node, d *fit.Demand) []*fit.Demand {
	if len(d.Requests) != 1 || len(d.Requests[0].Alternatives) != 1 || d.Requests[0].Alternatives[0].Count != 1 {
		return []*fit.Demand{d}
	}
	var all []*fit.Demand
	for device := range n.Devices {
		if !d.Requests[0].Alternatives[0].Candidates.Has(device) {
			continue
		}
		only := d.Requests[0].Alternatives[0]
		only.Candidates = fit.NewSet(len(n.Devices))
		only.Candidates.Add(device)
		request := d.Requests[0]
		request.Alternatives = []fit.Alternative{only}
		all = append(all, &fit.Demand{Requests: []fit.Request{request}, Constraints: d.Constraints})
	}
	return all
}

// eviction is one search: everybody leaves, then comes back who can.
type eviction struct {
	node    fit.Node
	demand  *fit.Demand
	holders []Holder
}

func (e *eviction) run() (Answer, bool, error) {
	concerned := e.concerned()
	e.node.GPUs = slices.Clone(e.node.GPUs)
	for _, i := range concerned {
		if err := e.each(i, gpu.Occupancy.Release); err != nil {
			return Answer{}, false, err
		}
	}
	choice, fits := fit.Choose(&e.node, e.demand)
	if !fits {
		return Answer{}, false, nil
	}
	answer := Answer{Choice: choice}
	for _, i := range e.byImportance(concerned) {
		if err := e.each(i, gpu.Occupancy.Take); err != nil {
			return Answer{}, false, err
		}
		if choice, fits := fit.Choose(&e.node, e.demand); fits {
			answer.Choice = choice
			continue
		}
		if err := e.each(i, gpu.Occupancy.Release); err != nil {
			return Answer{}, false, err
		}
		answer.Victims = append(answer.Victims, i)
	}
	slices.Sort(answer.Victims)
	return answer, true, nil
}

// concerned returns the holders that hold something of a GPU that the demand could use.
func (e *eviction) concerned() []int {
	useful := make([]bool, len(e.node.GPUs))
	for _, request := range e.demand.Requests {
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

// each has the holder take what it holds, or release it.
func (e *eviction) each(holder int, change func(gpu.Occupancy, gpu.Use) (gpu.Occupancy, error)) error {
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
		return cmp.Or(importance(e.holders[b], e.holders[a]), cmp.Compare(heaviest(b), heaviest(a)))
	})
	return ordered
}

// importance compares two holders by what their eviction would hurt.
func importance(a, b Holder) int {
	return cmp.Or(cmp.Compare(protected(a), protected(b)), cmp.Compare(a.Priority, b.Priority))
}

func protected(h Holder) int {
	if h.Protected {
		return 1
	}
	return 0
}

// compare is negative when a hurts less than b, or as much and leaves more.
func compare(holders []Holder, a, b Answer) int {
	return cmp.Or(
		cmp.Compare(violations(holders, a), violations(holders, b)),
		slices.Compare(priorities(holders, a), priorities(holders, b)),
		cmp.Compare(b.Choice.Score, a.Choice.Score),
	)
}

func violations(holders []Holder, a Answer) int {
	n := 0
	for _, i := range a.Victims {
		n += protected(holders[i])
	}
	return n
}

// priorities are those of the victims, the highest first. Of two lists the one that ends first hurts
// less.
func priorities(holders []Holder, a Answer) []int32 {
	list := make([]int32, len(a.Victims))
	for n, i := range a.Victims {
		list[n] = holders[i].Priority
	}
	slices.SortFunc(list, func(x, y int32) int { return cmp.Compare(y, x) })
	return list
}
