package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The times and limits of the health rules.
const (
	// DefaultQuiet is the quiet period of a condition: how long it must be absent before its fault is over.
	DefaultQuiet = 5 * time.Minute
	// LongestQuiet bounds the quiet period of a fault that recurs. It is also how long a fault that is over is kept.
	LongestQuiet = time.Hour
	// linkQuiet bounds the quiet period of NVLinks and their fabric, which are down for a short time after each boot and reset,
	// including a reset of a peer GPU.
	linkQuiet = 30 * time.Second
	// settling is how long after a reset a condition from before it can still be reported: links are trained again, and
	// counters are updated.
	settling = time.Minute
	// clockError is how far a stored time may be in the future before it is attributed to a wrong clock and replaced.
	clockError = time.Minute
	// mostFaults bounds the faults of one GPU. Beyond it, the fault of least importance is dropped (dropExcessFault).
	mostFaults = 64
)

// Health is the record of the faults of a node's GPUs, which survives restarts of the agent. It is a value: methods return a
// changed copy and leave the receiver unchanged, including its maps and slices.
//
// The invariant: recording observations (Note, Check, Reset) never improves a device. Its severity stays or rises, even if
// faults are dropped because there are more than mostFaults. Only Settle ends faults, and only with the proof that their remedy
// demands (Remedy). A GPU that stops reporting an error is not thereby healthy.
type Health struct {
	// Faults are ordered by GPU, placement, signal and number, which are their identity.
	Faults []Fault `json:"faults,omitempty"`
	// Boot is the boot ID to which Links and Resets belong.
	Boot string `json:"boot,omitempty"`
	// Links has, by GPU name, the largest number of NVLinks that were up. Resets has the time of the last reset.
	Links  map[string]int       `json:"links,omitempty"`
	Resets map[string]time.Time `json:"resets,omitempty"`
}

// InEffect returns the faults in effect with severity Warning or higher. The most severe comes first; among equally severe
// ones, the oldest.
func (h Health) InEffect() []Fault { return worst(h.Faults, func(Fault) bool { return true }) }

// Note records an event. boot is the current boot ID.
func (h Health) Note(r Rules, e Event, boot string) Health {
	return h.see(r, Fault{GPU: e.GPU, Placement: e.Placement, UUID: e.UUID, Signal: SignalXID, XID: e.XID, Last: e.At, Count: e.Count, Boot: boot})
}

// Reset records that the named GPUs were reset together and that the reset completed at the given time. Resets may be recorded
// in any order; the latest time is kept.
func (h Health) Reset(gpus []string, at time.Time, boot string) Health {
	h = h.in(boot)
	for _, name := range gpus {
		if at.After(h.Resets[name]) { // a reset can be recorded after a later one
			h.Resets = with(h.Resets, name, at)
		}
	}
	return h
}

// Check records the result of one check of a GPU. A present condition begins or renews its fault; an absent one starts the
// fault's quiet period. A condition that the checkup does not contain changes nothing, since the hardware did not report it.
//
// A checkup with a UUID proves that the GPU and its driver respond, so that SignalLost and SignalDriver are absent.
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

// in returns the health in the boot. In a new boot, links and resets are unknown.
func (h Health) in(boot string) Health {
	if h.Boot != boot {
		h.Boot, h.Links, h.Resets = boot, nil, nil
	}
	return h
}

// count compares the links of a condition of SignalNVLink with the most that were up in this boot, and returns it with Present
// and Detail set. Links that cannot be used now (LinksUnused) are not missing, and the recorded maximum is kept.
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

// identify sets the UUID of the GPU's faults that were last seen in this boot and have none. Faults of other boots are left:
// another GPU could have been in that place.
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

// see records an observation: it inserts a new fault or renews the existing one.
func (h Health) see(r Rules, f Fault) Health {
	i, known := slices.BinarySearchFunc(h.Faults, f, Fault.order)
	if known {
		h.Faults = slices.Clone(h.Faults)
		h.Faults[i] = h.Faults[i].again(r, f)
		return h
	}
	faults := make([]Fault, 0, len(h.Faults)+1)
	faults = append(append(append(faults, h.Faults[:i]...), f.begun(r)), h.Faults[i:]...)
	h.Faults = dropExcessFault(faults, f.GPU)
	return h
}

// begun returns the observation f as a new fault: judged, counted and with the quiet period of its signal.
func (f Fault) begun(r Rules) Fault {
	j := r.Judge(f.Signal, f.XID)
	f.Severity, f.Remedy, f.Since, f.Count, f.Quiet = j.Severity, j.Remedy, f.Last, max(f.Count, 1), r.quiet(f.Signal)
	return f
}

// again returns the fault after it was observed again.
//
// If another GPU is in its place (a different UUID), the fault is replaced. If it was over, it starts again with a new Since
// and Count. If it was over or absent, its quiet period is doubled, so that a fault that comes and goes ends more slowly each
// time. Otherwise it is only updated and counted.
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

// miss records that the condition of f was found absent at f.Last. Only the first absence starts the quiet period.
func (h Health) miss(f Fault) Health {
	i, known := slices.BinarySearchFunc(h.Faults, f, Fault.order)
	if !known || !h.Faults[i].InEffect() || !h.Faults[i].Gone.IsZero() {
		return h
	}
	h.Faults = slices.Clone(h.Faults)
	h.Faults[i].Gone = f.Last
	return h
}

// with returns a copy of the map in which name has the value. The argument may be nil.
func with[V any](m map[string]V, name string, value V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[name] = value
	return m
}

// dropExcessFault removes one fault of the GPU if there are more than mostFaults. It modifies the slice.
//
// Candidates are the faults whose removal improves no device: those that are over, that are Harmless, or that another fault
// covers. The candidate of least importance (worth) is removed.
//
// There is always a candidate; all faults of the GPU are considered only as a precaution. Of the other faults, two of one
// severity never start at the same memory slice, since one would cover the other. With three severities there are at most
// 3*MaxSlices of them, which is less than mostFaults.
func dropExcessFault(faults []Fault, gpuName string) []Fault {
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

// worth orders faults by importance, ascending: faults that are over before faults in effect, then by severity, then by the
// time at which they were last seen.
func (f Fault) worth(g Fault) int {
	if f.InEffect() != g.InEffect() {
		if g.InEffect() {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(f.Severity, g.Severity), f.Last.Compare(g.Last))
}
