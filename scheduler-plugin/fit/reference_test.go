package fit_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// drawNode returns one of the nodes with some things held of it.
func drawNode(t *rapid.T, nodes []*fit.Node) *fit.Node {
	n := *rapid.SampledFrom(nodes).Draw(t, "node")
	n.GPUs = slices.Clone(n.GPUs)
	for range rapid.IntRange(0, 14).Draw(t, "held") {
		i := rapid.IntRange(0, len(n.Devices)-1).Draw(t, "device")
		d := n.Devices[i]
		if d.Use.Shape.Shared() {
			d.Use.Share = drawShare(t)
		}
		if next, err := n.GPUs[d.GPU].Occupancy.Take(d.Use); err == nil {
			n.GPUs[d.GPU].Occupancy = next
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "withhold") == 0 {
		g := rapid.IntRange(0, len(n.GPUs)-1).Draw(t, "GPU")
		n.GPUs[g].Occupancy = n.GPUs[g].Occupancy.Withhold(gpu.Mask(rapid.Uint16().Draw(t, "mask")))
	}
	return &n
}

func drawShare(t *rapid.T) gpu.Share {
	return gpu.Share{
		MemoryBytes: uint64(rapid.IntRange(0, 40).Draw(t, "memory")) << 30,
		Shares:      rapid.IntRange(1, 3).Draw(t, "shares"), Compute: rapid.IntRange(0, 60).Draw(t, "compute"),
	}
}

func drawDemand(t *rapid.T, n *fit.Node) *fit.Requirements {
	d := &fit.Requirements{}
	for i := range rapid.IntRange(1, 4).Draw(t, "requests") {
		r := fit.Request{Name: fmt.Sprintf("claim/%d", i)}
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "alternatives") {
			r.Alternatives = append(r.Alternatives, drawAlternative(t, n))
		}
		d.Requests = append(d.Requests, r)
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "constraints") {
		d.Constraints = append(d.Constraints, drawConstraint(t, n, d))
	}
	return d
}

func drawAlternative(t *rapid.T, n *fit.Node) fit.Alternative {
	like := n.Devices[rapid.IntRange(0, len(n.Devices)-1).Draw(t, "like")]
	breadth := rapid.IntRange(0, 9).Draw(t, "breadth")
	a := fit.Alternative{
		Description: fmt.Sprint(like.Use), Count: rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "count"),
		Candidates: selected(n, func(d fit.Device) bool {
			switch breadth {
			case 0:
				return true
			case 1:
				return d.Use.Shape == like.Use.Shape
			}
			return d.Use.Shape == like.Use.Shape && d.Use.Placement.Profile == like.Use.Placement.Profile
		}),
	}
	if rapid.Bool().Draw(t, "shares") {
		a.Shares = make([]gpu.Share, len(n.Devices))
		s := drawShare(t)
		for i, d := range n.Devices {
			if d.Use.Shape.Shared() {
				a.Shares[i] = s
			}
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "some") == 0 {
		some := rapid.Uint64().Draw(t, "of them")
		for i := range a.Candidates {
			a.Candidates[i] &= some
		}
	}
	return a
}

func drawConstraint(t *rapid.T, n *fit.Node, req *fit.Requirements) fit.Constraint {
	c := fit.Constraint{Attribute: "attribute", Distinct: rapid.Bool().Draw(t, "distinct")}
	of := rapid.SampledFrom([]func(int, fit.Device) int32{
		func(_ int, d fit.Device) int32 { return int32(d.GPU + 1) },
		func(_ int, d fit.Device) int32 { return int32(n.GPUs[d.GPU].NUMA + 1) },
		func(_ int, d fit.Device) int32 { return int32(d.Use.Placement.Start) },
		func(i int, _ fit.Device) int32 { return int32(i % 3) },
	}).Draw(t, "attribute")
	for i, device := range n.Devices {
		c.Values = append(c.Values, of(i, device))
	}
	for r := range req.Requests {
		switch rapid.IntRange(0, 3).Draw(t, "member") {
		case 0:
		case 1:
			c.Members = append(c.Members, fit.Member{Request: r, Alternative: 0})
		default:
			c.Members = append(c.Members, fit.Member{Request: r, Alternative: -1})
		}
	}
	return c
}

// exhaustive tries every device for every request, in order, as the in-tree allocator does.
type exhaustive struct {
	node     *fit.Node
	demand   *fit.Requirements
	occupied []gpu.Occupancy
	picks    []fit.Pick
	fixed    []int
	steps    int
}

// mostSteps is where the search gives up undecided.
const mostSteps = 20_000

// search returns the first alternatives that can be served, nil when none can.
func (e *exhaustive) search() (alternatives []int, decided bool) {
	combination := make([]int, len(e.demand.Requests))
	for {
		e.fixed, e.picks, e.occupied = combination, make([]fit.Pick, len(combination)), nil
		for _, g := range e.node.GPUs {
			e.occupied = append(e.occupied, g.Occupancy)
		}
		if e.device(0, 0) {
			return combination, true
		}
		if e.steps > mostSteps {
			return nil, false
		}
		last := len(combination) - 1
		for ; last >= 0; last-- {
			if combination[last]++; combination[last] < len(e.demand.Requests[last].Alternatives) {
				break
			}
			combination[last] = 0
		}
		if last < 0 {
			return nil, true
		}
	}
}

func (e *exhaustive) device(r, from int) bool {
	if e.steps++; e.steps > mostSteps {
		return false
	}
	if r == len(e.picks) {
		return true
	}
	e.picks[r].Alternative = e.fixed[r]
	a := e.demand.Requests[r].Alternatives[e.fixed[r]]
	if len(e.picks[r].Devices) == a.Count {
		return e.device(r+1, 0)
	}
	for device := from; device < len(e.node.Devices); device++ {
		if !a.Candidates.Has(device) {
			continue
		}
		g := e.node.Devices[device].GPU
		before := e.occupied[g]
		e.picks[r].Devices = append(e.picks[r].Devices, device)
		after, err := before.Take(use(e.node, &a, device))
		if err == nil && consistent(e.node, e.demand, e.picks) == nil {
			e.occupied[g] = after
			if e.device(r, device+1) {
				return true
			}
		}
		e.occupied[g] = before
		e.picks[r].Devices = e.picks[r].Devices[:len(e.picks[r].Devices)-1]
	}
	return false
}

func use(n *fit.Node, a *fit.Alternative, device int) gpu.Use {
	u := n.Devices[device].Use
	if a.Shares != nil {
		u.Share = a.Shares[device]
	}
	return u
}

// consistent returns an error when the picks, which may be incomplete, break a constraint or give a
// device away twice.
func consistent(n *fit.Node, req *fit.Requirements, picks []fit.Pick) error {
	times := map[int]int{}
	for _, pick := range picks {
		own := map[int]bool{}
		for _, device := range pick.Devices {
			times[device]++
			if own[device] || times[device] > 1 && !n.Devices[device].Use.Shape.Shared() {
				return fmt.Errorf("device %d is picked twice", device)
			}
			own[device] = true
		}
	}
	for _, c := range req.Constraints {
		var values []int32
		for r, pick := range picks {
			if !slices.ContainsFunc(c.Members, func(m fit.Member) bool {
				return m.Request == r && (m.Alternative < 0 || m.Alternative == pick.Alternative)
			}) {
				continue
			}
			for _, device := range pick.Devices {
				values = append(values, c.Values[device])
			}
		}
		slices.Sort(values)
		different := len(slices.Compact(slices.Clone(values)))
		switch {
		case slices.Contains(values, 0):
			return fmt.Errorf("a device lacks %s", c.Attribute)
		case c.Distinct && different < len(values):
			return fmt.Errorf("%s is not distinct: %v", c.Attribute, values)
		case !c.Distinct && different > 1:
			return fmt.Errorf("%s does not match: %v", c.Attribute, values)
		}
	}
	return nil
}

// valid returns an error when the choice is not an answer to the demand.
func valid(n *fit.Node, req *fit.Requirements, choice fit.Choice) error {
	if len(choice.Picks) != len(req.Requests) {
		return fmt.Errorf("%d picks for %d requests", len(choice.Picks), len(req.Requests))
	}
	occupied := map[int]gpu.Occupancy{}
	for r, pick := range choice.Picks {
		a := req.Requests[r].Alternatives[pick.Alternative]
		if len(pick.Devices) != a.Count {
			return fmt.Errorf("%d devices, want %d", len(pick.Devices), a.Count)
		}
		for _, device := range pick.Devices {
			g := n.Devices[device].GPU
			before, ok := occupied[g]
			if !ok {
				before = n.GPUs[g].Occupancy
			}
			after, err := before.Take(use(n, &a, device))
			if err != nil {
				return err
			}
			if !a.Candidates.Has(device) {
				return fmt.Errorf("device %d is no candidate", device)
			}
			occupied[g] = after
		}
	}
	return consistent(n, req, choice.Picks)
}
