package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The times of the rules.
const (
	// DefaultQuiet is how long a condition must be gone before its fault is over.
	DefaultQuiet = 5 * time.Minute
	// LongestQuiet is the most that it becomes for one that comes and goes, and how long a fault that is over is remembered.
	LongestQuiet = time.Hour
	// linkQuiet is DefaultQuiet for NVLinks and their fabric, which form after every boot and reset, and of a peer's.
	linkQuiet = 30 * time.Second
	// settling is how long a GPU may take after a reset until its links and counters say how it is.
	settling = time.Minute
	// clockError is how far a time may lie ahead before it is taken for that of a clock which was wrong.
	clockError = time.Minute
	// mostFaults is how many faults of one GPU are kept; of more, the least severe and oldest are forgotten.
	mostFaults = 64
)

// Health is everything that is remembered of the health of a node's GPUs. It is a value: its methods return another one and leave it
// as it is. Note and Check only ever make a device worse; Settle alone ends faults, for what proves it.
type Health struct {
	// Faults are ordered by GPU, placement, signal and number.
	Faults []Fault `json:"faults,omitempty"`
	// Boot is the boot of which Links and Resets speak.
	Boot string `json:"boot,omitempty"`
	// Links is the most NVLinks that each GPU was seen with, Resets when it was last reset, by name.
	Links  map[string]int       `json:"links,omitempty"`
	Resets map[string]time.Time `json:"resets,omitempty"`
}

// InEffect returns the faults that are not over, Warning or worse: the worst first, of those that are as bad the one that is there for
// longest.
func (h Health) InEffect() []Fault { return worst(h.Faults, func(Fault) bool { return true }) }

// Note takes an event in.
func (h Health) Note(r Rules, e Event, boot string) Health {
	return h.see(r, Fault{GPU: e.GPU, Placement: e.Placement, UUID: e.UUID, Signal: SignalXID, XID: e.XID, Last: e.At, Count: e.Count, Boot: boot})
}

// Reset takes in that the GPUs were reset together, when that was done.
func (h Health) Reset(gpus []string, at time.Time, boot string) Health {
	h = h.in(boot)
	for _, name := range gpus {
		if at.After(h.Resets[name]) { // what is told late may be told after a later one
			h.Resets = with(h.Resets, name, at)
		}
	}
	return h
}

// Check takes in what a look at a GPU found.
func (h Health) Check(r Rules, c Checkup, boot string) Health {
	h = h.in(boot)
	if c.UUID != "" {
		h = h.identify(c, boot)
		for _, s := range []Signal{SignalLost, SignalDriver} {
			h = h.miss(Fault{GPU: c.GPU, Signal: s, Last: c.At})
		}
	}
	for _, condition := range c.Conditions {
		if condition.Signal == SignalNVLink {
			h, condition = h.count(c.GPU, condition)
		}
		f := Fault{
			GPU: c.GPU, UUID: c.UUID, Placement: condition.Placement, Signal: condition.Signal, Detail: condition.Detail, Last: c.At, Boot: boot,
		}
		if condition.Present {
			h = h.see(r, f)
		} else {
			h = h.miss(f)
		}
	}
	return h
}

// in returns the health in the boot: another one begins with links and resets unknown.
func (h Health) in(boot string) Health {
	if h.Boot != boot {
		h.Boot, h.Links, h.Resets = boot, nil, nil
	}
	return h
}

// count remembers the most NVLinks that the GPU had, and says whether some are missing. What was remembered stays while they are not used.
func (h Health) count(name string, c Condition) (Health, Condition) {
	if c.Links == LinksUnused {
		c.Present = false
		return h, c
	}
	most := h.Links[name]
	if c.Links > most {
		most = c.Links
		h.Links = with(h.Links, name, most)
	}
	c.Present, c.Detail = c.Links < most, fmt.Sprintf("%d of %d links are up", c.Links, most)
	return h, c
}

// identify has the faults that began in this boot while the GPU could not say its UUID speak of the one that does now.
func (h Health) identify(c Checkup, boot string) Health {
	cloned := false
	for i, f := range h.Faults {
		if f.GPU != c.GPU || f.UUID != "" || f.Boot != boot {
			continue
		}
		if !cloned {
			h.Faults, cloned = slices.Clone(h.Faults), true
		}
		h.Faults[i].UUID = c.UUID
	}
	return h
}

// see adds a fault, or counts one that is known.
func (h Health) see(r Rules, f Fault) Health {
	i, known := slices.BinarySearchFunc(h.Faults, f, Fault.order)
	if known {
		h.Faults = slices.Clone(h.Faults)
		h.Faults[i] = h.Faults[i].again(r, f)
		return h
	}
	faults := make([]Fault, 0, len(h.Faults)+1)
	faults = append(append(append(faults, h.Faults[:i]...), f.begun(r)), h.Faults[i:]...)
	h.Faults = forget(faults, f.GPU)
	return h
}

// begun returns the fault as it is when it is first seen.
func (f Fault) begun(r Rules) Fault {
	j := r.Judge(f.Signal, f.XID)
	f.Severity, f.Remedy, f.Since, f.Count, f.Quiet = j.Severity, j.Remedy, f.Last, max(f.Count, 1), r.quiet(f.Signal)
	return f
}

// again returns the fault as it is when it is seen once more. One that was over begins anew; one that was gone or over must stay away for
// longer. One of another GPU in the same place has nothing to do with it.
func (f Fault) again(r Rules, seen Fault) Fault {
	if seen.UUID != "" && f.UUID != "" && seen.UUID != f.UUID {
		return seen.begun(r)
	}
	quiet := f.Quiet
	if !f.InEffect() || !f.Gone.IsZero() {
		quiet = max(quiet, min(2*quiet, LongestQuiet))
	}
	if !f.InEffect() {
		if seen.UUID == "" {
			seen.UUID = f.UUID
		}
		f = seen.begun(r)
		f.Quiet = quiet
		return f
	}
	if seen.UUID != "" {
		f.UUID = seen.UUID
	}
	if seen.Detail != "" {
		f.Detail = seen.Detail
	}
	if seen.Last.After(f.Last) {
		f.Last = seen.Last
	}
	f.Boot, f.Gone, f.Quiet, f.Count = seen.Boot, time.Time{}, quiet, f.Count+max(seen.Count, 1)
	return f
}

// miss notes that a condition is not there.
func (h Health) miss(f Fault) Health {
	i, known := slices.BinarySearchFunc(h.Faults, f, Fault.order)
	if !known || !h.Faults[i].InEffect() || !h.Faults[i].Gone.IsZero() {
		return h
	}
	h.Faults = slices.Clone(h.Faults)
	h.Faults[i].Gone = f.Last
	return h
}

// with returns the map with the value of the name.
func with[V any](m map[string]V, name string, value V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[name] = value
	return m
}

// forget keeps the number of faults of a GPU in bounds: of those that make no device worse, or else of all, the least severe goes that was
// last seen longest ago. The faults are the caller's to change.
func forget(faults []Fault, gpuName string) []Fault {
	var own, idle []int
	for i, f := range faults {
		if f.GPU == gpuName {
			own = append(own, i)
		}
	}
	if len(own) <= mostFaults {
		return faults
	}
	for _, i := range own {
		covered := func(k int) bool { return k != i && faults[k].covers(faults[i]) }
		if !faults[i].InEffect() || faults[i].Severity == Harmless || slices.ContainsFunc(own, covered) {
			idle = append(idle, i)
		}
	}
	if len(idle) == 0 {
		idle = own
	}
	least := slices.MinFunc(idle, func(a, b int) int { return faults[a].worth(faults[b]) })
	return slices.Delete(faults, least, least+1)
}

// worth orders faults by how much is lost when they are forgotten, ascending.
func (f Fault) worth(g Fault) int {
	if f.InEffect() != g.InEffect() {
		if g.InEffect() {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(f.Severity, g.Severity), f.Last.Compare(g.Last))
}
