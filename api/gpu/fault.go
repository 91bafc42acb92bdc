package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Fault is something that is wrong with a GPU, or was until a while ago. It is kept on disk and shown to people: fields are only added.
type Fault struct {
	// GPU is the GPU's name, UUID what was in that place when the fault was first seen, as soon as it says so.
	GPU  string `json:"gpu"`
	UUID string `json:"uuid,omitempty"`
	// Placement is that of the MIG device which alone is affected; without one the whole GPU is.
	Placement Placement `json:"placement,omitzero"`
	// Signal tells it, XID with which number.
	Signal Signal `json:"signal"`
	XID    int    `json:"xid,omitempty"`
	// Severity and Remedy are as the rules judged it when it began, and with every Settle.
	Severity Severity `json:"severity"`
	Remedy   Remedy   `json:"remedy"`
	// Detail is what the hardware says, for people.
	Detail string `json:"detail,omitempty"`
	// Since is when it was first seen since it was over last, Last when it was last, Count how often since: events, or looks that found it.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Count int       `json:"count"`
	// Boot is the boot in which it was last seen.
	Boot string `json:"boot"`
	// Gone is since when a condition is not there; zero while it is, and for an event.
	Gone time.Time `json:"gone,omitzero"`
	// Quiet is how long it must be gone to be over by itself. It doubles, up to an hour, each time that it comes back.
	Quiet time.Duration `json:"quiet"`
	// Over is when it was proven to be over; it is remembered for a while, in case it comes back. Zero: it is in effect.
	Over time.Time `json:"over,omitzero"`
}

// String names the fault for messages, such as "XID 79" or "remap-pending".
func (f Fault) String() string {
	if f.Signal == SignalXID {
		return fmt.Sprintf("XID %d", f.XID)
	}
	return string(f.Signal)
}

// InEffect reports whether the fault is not over.
func (f Fault) InEffect() bool { return f.Over.IsZero() }

// Affects reports whether a device of the fault's GPU has part in it: every one when the whole GPU is affected, else the MIG devices
// that share memory slices with the affected one and every use of the whole GPU. A monitor never has: it is for finding out.
func (f Fault) Affects(u Use) bool {
	switch u.Shape {
	case Monitor, None:
		return false
	case MIG:
		return f.whole() || f.Placement.Mask().Overlaps(u.Placement.Mask())
	case Whole, TimeShare, MPS, VFIO:
	}
	return true
}

// whole reports whether the whole GPU is affected. A placement that no GPU can have says nothing of where the fault is.
func (f Fault) whole() bool { return f.Placement.Mask() == 0 }

// covers reports whether every device that has part in the other fault is as badly off for this one.
func (f Fault) covers(g Fault) bool {
	if f.GPU != g.GPU || !f.InEffect() || f.Severity < g.Severity {
		return false
	}
	return f.whole() || !g.whole() && g.Placement.Mask()&^f.Placement.Mask() == 0
}

// order is how faults are listed: by GPU, placement, signal and number. No two of a Health are equal in it.
func (f Fault) order(g Fault) int {
	if c := cmp.Compare(f.GPU, g.GPU); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(f.Placement.Start, g.Placement.Start), cmp.Compare(f.Placement.Size, g.Placement.Size), cmp.Compare(f.Placement.Profile, g.Placement.Profile),
		cmp.Compare(f.Signal, g.Signal), cmp.Compare(f.XID, g.XID),
	)
}

// Ailments returns the faults in effect, Warning or worse, that a device of the GPU has part in: the worst first, of those that are as bad
// the one that is there for longest.
func (g GPU) Ailments(u Use) []Fault {
	return worst(g.Faults, func(f Fault) bool { return f.Affects(u) })
}

// worst returns the faults in effect, Warning or worse, that are chosen, as Ailments orders them.
func worst(faults []Fault, chosen func(Fault) bool) []Fault {
	var found []Fault
	for _, f := range faults {
		if f.InEffect() && f.Severity >= Warning && chosen(f) {
			found = append(found, f)
		}
	}
	slices.SortStableFunc(found, func(a, b Fault) int { return cmp.Or(cmp.Compare(b.Severity, a.Severity), a.Since.Compare(b.Since)) })
	return found
}
