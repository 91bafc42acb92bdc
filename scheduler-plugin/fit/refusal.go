package fit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Refusal says why a node cannot serve a demand; the zero value says that it can.
type Refusal struct {
	// Request is the first request that cannot be served, beside those before it.
	Request string
	// Reason says what it needs and what every GPU lacks.
	Reason string
}

// String returns the refusal for messages.
func (r Refusal) String() string { return r.Request + ": " + r.Reason }

// Explain returns why the node cannot serve the demand. It is for people: Choose is far faster.
func Explain(n *Node, d *Demand) Refusal {
	for i, r := range d.Requests {
		first := &Demand{Requests: d.Requests[:i+1], Constraints: d.Constraints}
		if _, ok := Choose(n, first); !ok {
			return Refusal{Request: r.Name, Reason: reason(n, first)}
		}
	}
	return Refusal{}
}

// reason says why the last request of the demand cannot be served although those before it can.
func reason(n *Node, d *Demand) string {
	last := len(d.Requests) - 1
	alone := &Demand{Requests: d.Requests[last:]}
	if _, ok := Choose(n, alone); !ok {
		return lacks(n, &d.Requests[last])
	}
	if _, ok := Choose(n, &Demand{Requests: d.Requests}); ok {
		return "devices are free, but not with " + strings.Join(blocking(n, d), " and ")
	}
	var others []string
	for _, r := range d.Requests[:last] {
		others = append(others, r.Name)
	}
	return fmt.Sprintf("%s; not beside what %s needs", lacks(n, &d.Requests[last]), strings.Join(others, ", "))
}

// blocking names the constraints without any one of which the demand could be served, or all that bind
// the last request when it takes more than one.
func blocking(n *Node, d *Demand) []string {
	var one, all []string
	for i, c := range d.Constraints {
		name := "equal " + c.Attribute
		if c.Distinct {
			name = "different " + c.Attribute
		}
		last := len(d.Requests) - 1
		if !slices.ContainsFunc(c.Members, func(m Member) bool { return m.Request <= last }) {
			continue
		}
		all = append(all, name)
		without := slices.Delete(slices.Clone(d.Constraints), i, i+1)
		if _, ok := Choose(n, &Demand{Requests: d.Requests, Constraints: without}); ok {
			one = append(one, name)
		}
	}
	if len(one) > 0 {
		return one
	}
	return all
}

// lacks says what every alternative of the request needs and what every GPU that could give it has.
func lacks(n *Node, r *Request) string {
	var all []string
	for i := range r.Alternatives {
		a := &r.Alternatives[i]
		text := a.lacks(n)
		if a.Name != "" {
			text = a.Name + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, "; or ")
}

func (a *Alternative) lacks(n *Node) string {
	parts := []string{"needs " + a.needs(n)}
	for g := range n.GPUs {
		if text := a.state(n, g); text != "" {
			parts = append(parts, n.GPUs[g].Name+": "+text)
		}
	}
	if len(parts) == 1 {
		parts = append(parts, "no device of the node is such a one, or a taint keeps it")
	}
	return strings.Join(parts, "; ")
}

// needs says what the alternative asks for.
func (a *Alternative) needs(n *Node) string {
	what := a.Wants
	var kinds []string
	for device := range a.Candidates.all {
		d := &n.Devices[device]
		if kind := kindOf(n.GPUs[d.GPU].Kind.Geometry, d.Use); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) > 0 {
		what += " (" + strings.Join(kinds[:min(len(kinds), mostKinds)], ", ")
		if len(kinds) > mostKinds {
			what += ", …"
		}
		what += ")"
	}
	if a.Count > 1 {
		what = fmt.Sprintf("%d x %s", a.Count, what)
	}
	return strings.TrimSpace(what)
}

// mostKinds is how many kinds of devices a message lists.
const mostKinds = 4

// kindOf names what a use takes.
func kindOf(g *gpu.Geometry, u gpu.Use) string {
	switch u.Shape {
	case gpu.MIG:
		p, _ := g.Profile(u.Placement.Profile)
		return fmt.Sprintf("%s: %s from %s", p.Name, plural(p.Size, "slice"), starts(p.Starts))
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

// starts lists numbers, such as "0, 2 or 4".
func starts(all []int) string {
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

// state says how much the GPU has left for the alternative; empty when none of the candidates is on it.
func (a *Alternative) state(n *Node, position int) string {
	o := n.GPUs[position].Occupancy
	free, slices, conflict := 0, 0, ""
	for device := range a.Candidates.all {
		if n.Devices[device].GPU != position {
			continue
		}
		use := a.use(n, device)
		_, err := o.Take(use)
		if err == nil {
			free++
		} else if conflict == "" || hidden(o, use) {
			conflict = plain(err)
		}
		if use.Shape == gpu.MIG {
			slices++
		}
	}
	switch {
	case slices > 0 && (o.Shape() == gpu.None || o.Shape() == gpu.MIG):
		return slicesLeft(o, free, conflict)
	case free > 0:
		return "free"
	}
	return conflict
}

// hidden reports whether the free slices do not show why the use is refused.
func hidden(o gpu.Occupancy, u gpu.Use) bool {
	return u.Shape == gpu.MIG && !u.Placement.Mask().Overlaps(^o.Free())
}

// slicesLeft describes a GPU that can be carved. Why a placement in free slices is refused cannot be seen
// from the slices.
func slicesLeft(o gpu.Occupancy, free int, conflict string) string {
	text := fmt.Sprintf("free slices %v", o.Free())
	if withheld := o.Withheld(); withheld != 0 {
		text += fmt.Sprintf(", withheld %v", withheld)
	}
	if free == 0 && !strings.HasPrefix(conflict, "memory slices") {
		text += ", " + conflict
	}
	return text
}

// plain returns the conflict that an error of Take names, without what is taken and the sentinel.
func plain(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	text := strings.TrimSuffix(err.Error(), ": "+gpu.ErrOccupied.Error())
	return strings.TrimPrefix(text, "the GPU is ")
}
