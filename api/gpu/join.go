package gpu

import (
	"cmp"
	"slices"
	"time"
)

// Join takes in what another watcher of the same node remembers, such as the agent that spoke for the node before this one. Of a fault that both
// know, the one that saw it last is right; when both saw it last at the same time, it is in effect if either says so, because what is over
// is proven again.
func (h Health) Join(other Health) Health {
	faults := slices.Clone(h.Faults)
	for _, f := range other.Faults {
		i, known := slices.BinarySearchFunc(faults, f, Fault.order)
		if known {
			faults[i] = faults[i].join(f)
			continue
		}
		faults = forget(slices.Insert(faults, i, f), f.GPU)
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

// join returns what two watchers know of one fault.
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
