package gpu

import (
	"cmp"
	"slices"
	"time"
)

// Join merges the health that another process recorded about the same node, such as the previous agent before a handover. A
// fault that both have is taken from the one that saw it last. If both saw it last at the same time, it is in effect if either
// has it in effect: the proof that it is over is repeated by the next Settle. Links and resets are merged if both are of the
// same boot.
func (h Health) Join(other Health) Health {
	faults := slices.Clone(h.Faults)
	for _, f := range other.Faults {
		i, known := slices.BinarySearchFunc(faults, f, Fault.order)
		if known {
			faults[i] = faults[i].join(f)
			continue
		}
		faults = dropExcessFault(slices.Insert(faults, i, f), f.GPU)
	}
	h.Faults = faults
	if other.Boot != h.Boot {
		return h
	}
	for name, links := range other.Links {
		h.Links = with(h.Links, name, max(h.Links[name], links))
	}
	for name, at := range other.Resets {
		if at.After(h.Resets[name]) {
			h.Resets = with(h.Resets, name, at)
		}
	}
	return h
}

// join merges two records of one fault. Count and Quiet become the larger values.
func (f Fault) join(g Fault) Fault {
	last, other := f, g
	if g.Last.After(f.Last) {
		last, other = g, f
	}
	if last.InEffect() && other.InEffect() && other.Since.Before(last.Since) {
		last.Since = other.Since
	}
	if other.InEffect() && other.Last.Equal(last.Last) {
		last.Over = time.Time{}
	}
	last.UUID = cmp.Or(last.UUID, other.UUID)
	last.Count, last.Quiet = max(f.Count, g.Count), max(f.Quiet, g.Quiet)
	return last
}
