package fit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Refusal is why a node cannot satisfy requirements. The zero value means that it can.
type Refusal struct {
	// Request is the first request that cannot be served in addition to those before it.
	Request string
	// Reason describes what it needs and what each GPU lacks.
	Reason string
	// TooComplex reports that the budget ended before the reason was found.
	TooComplex bool
}

// String returns the refusal for messages.
func (r Refusal) String() string { return r.Request + ": " + r.Reason }

// Explain returns why the node cannot satisfy the requirements. It is for people, and much slower than Choose. Its steps
// are taken from the budget.
func Explain(n *Node, req *Requirements, b *Budget) Refusal {
	for i, r := range req.Requests {
		first := &Requirements{Requests: req.Requests[:i+1], Constraints: req.Constraints}
		if _, ok := Choose(n, first, b); ok {
			continue
		}
		reason := refusalReason(n, first, b)
		if b.Exceeded() {
			return Refusal{Request: r.Name, Reason: "not evaluated completely: " + ErrTooComplex.Error(), TooComplex: true}
		}
		return Refusal{Request: r.Name, Reason: reason}
	}
	return Refusal{}
}

// refusalReason returns why the last request cannot be served although those before it can.
func refusalReason(n *Node, req *Requirements, b *Budget) string {
	last := len(req.Requests) - 1
	alone := &Requirements{Requests: req.Requests[last:]}
	if _, ok := Choose(n, alone, b); !ok {
		return describeShortage(n, &req.Requests[last])
	}
	if _, ok := Choose(n, &Requirements{Requests: req.Requests}, b); ok {
		return "devices are free, but none satisfy " + strings.Join(blockingConstraints(n, req, b), " and ")
	}
	var others []string
	for _, r := range req.Requests[:last] {
		others = append(others, r.Name)
	}
	return fmt.Sprintf("%s; not in addition to %s", describeShortage(n, &req.Requests[last]), strings.Join(others, ", "))
}

// blockingConstraints returns the constraints without any one of which the requirements could be satisfied, or all
// constraints if more than one must go.
func blockingConstraints(n *Node, req *Requirements, b *Budget) []string {
	var one, all []string
	for i, c := range req.Constraints {
		name := "equal " + c.Attribute
		if c.Distinct {
			name = "different " + c.Attribute
		}
		last := len(req.Requests) - 1
		if !slices.ContainsFunc(c.Members, func(m Member) bool { return m.Request <= last }) {
			continue
		}
		all = append(all, name)
		without := slices.Delete(slices.Clone(req.Constraints), i, i+1)
		if _, ok := Choose(n, &Requirements{Requests: req.Requests, Constraints: without}, b); ok {
			one = append(one, name)
		}
	}
	if len(one) > 0 {
		return one
	}
	return all
}

// describeShortage returns what every alternative of the request needs and what every GPU with candidates has.
func describeShortage(n *Node, r *Request) string {
	var all []string
	for i := range r.Alternatives {
		a := &r.Alternatives[i]
		text := a.describeShortage(n)
		if a.Name != "" {
			text = a.Name + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, "; or ")
}

func (a *Alternative) describeShortage(n *Node) string {
	parts := []string{"needs " + a.describeNeed(n)}
	for g := range n.GPUs {
		if text := a.describeGPU(n, g); text != "" {
			parts = append(parts, n.GPUs[g].Name+": "+text)
		}
	}
	if len(parts) == 1 {
		parts = append(parts, "no matching untainted device on this node")
	}
	return strings.Join(parts, "; ")
}

// describeNeed returns what the alternative needs.
func (a *Alternative) describeNeed(n *Node) string {
	what := a.Description
	var kinds []string
	for device := range a.Candidates.all {
		d := &n.Devices[device]
		if kind := describeUse(n.GPUs[d.GPU].Kind.Geometry, d.Use); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) > 0 {
		what += " (" + strings.Join(kinds[:min(len(kinds), maxListedKinds)], ", ")
		if len(kinds) > maxListedKinds {
			what += ", …"
		}
		what += ")"
	}
	if a.Count > 1 {
		what = fmt.Sprintf("%d x %s", a.Count, what)
	}
	return strings.TrimSpace(what)
}

// maxListedKinds is the number of kinds of devices that a message lists.
const maxListedKinds = 4

// describeUse returns what a use takes.
func describeUse(g *gpu.Geometry, u gpu.Use) string {
	switch u.Shape {
	case gpu.MIG:
		p, _ := g.Profile(u.Placement.Profile)
		return fmt.Sprintf("%s: %s at %s", p.Name, plural(p.Size, "memory slice"), joinNumbers(p.Starts))
	case gpu.Whole, gpu.VFIO:
		return "an idle GPU"
	case gpu.TimeShare, gpu.MPS:
		return fmt.Sprintf("room on a GPU that is idle or in use as %v", u.Shape)
	case gpu.Monitor, gpu.None:
	}
	return u.Shape.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// joinNumbers lists numbers, such as "0, 2 or 4".
func joinNumbers(all []int) string {
	text := ""
	for i, start := range all {
		switch {
		case i == 0:
		case i == len(all)-1:
			text += " or "
		default:
			text += ", "
		}
		text += fmt.Sprint(start)
	}
	return text
}

// describeGPU returns what the GPU has left for the alternative, empty if it has no candidate.
func (a *Alternative) describeGPU(n *Node, position int) string {
	o := n.GPUs[position].Occupancy
	free, slices, conflict := 0, 0, ""
	for device := range a.Candidates.all {
		if n.Devices[device].GPU != position {
			continue
		}
		use := a.useOf(n, device)
		_, err := o.Take(use)
		if err == nil {
			free++
		} else if conflict == "" || isHiddenConflict(o, use) {
			conflict = conflictText(err)
		}
		if use.Shape == gpu.MIG {
			slices++
		}
	}
	switch {
	case slices > 0 && (o.Shape() == gpu.None || o.Shape() == gpu.MIG):
		return describeFreeSlices(o, free, conflict)
	case free > 0:
		return "free"
	}
	return conflict
}

// isHiddenConflict reports whether a use is rejected although its memory slices are free.
func isHiddenConflict(o gpu.Occupancy, u gpu.Use) bool {
	return u.Shape == gpu.MIG && !u.Placement.Mask().Overlaps(^o.Free())
}

// describeFreeSlices describes a GPU that can hold MIG devices. A conflict is added if the free memory slices do not
// explain it.
func describeFreeSlices(o gpu.Occupancy, free int, conflict string) string {
	text := fmt.Sprintf("free memory slices %v", o.Free())
	if withheld := o.Withheld(); withheld != 0 {
		text += fmt.Sprintf(", withheld %v", withheld)
	}
	if free == 0 && !strings.HasPrefix(conflict, "memory slices") {
		text += ", " + conflict
	}
	return text
}

// conflictText returns the conflict in an error of Take, without the use and the sentinel.
func conflictText(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	text := strings.TrimSuffix(err.Error(), ": "+gpu.ErrOccupied.Error())
	return strings.TrimPrefix(text, "the GPU is ")
}
