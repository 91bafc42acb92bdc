package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Fault is one detected problem of a GPU or MIG device: at most one exists per GPU, placement, signal and XID number. A fault
// that is over is kept for LongestQuiet, so that a recurrence is recognized.
//
// The JSON form may gain fields; existing ones are not removed or renamed.
type Fault struct {
	// GPU is the GPU's name. UUID identifies the hardware at that PCI address when the fault was first seen; it is empty until
	// the GPU reports it.
	GPU  string `json:"gpu"`
	UUID string `json:"uuid,omitempty"`
	// Placement is that of the only affected MIG device. The zero value means that the whole GPU is affected.
	Placement Placement `json:"placement,omitzero"`
	// Signal is what detected the fault. XID is the number, for SignalXID only.
	Signal Signal `json:"signal"`
	XID    int    `json:"xid,omitempty"`
	// Severity and Remedy are taken from the rules when the fault begins and again at every Settle.
	Severity Severity `json:"severity"`
	Remedy   Remedy   `json:"remedy"`
	// Detail is the hardware's description, for messages only.
	Detail string `json:"detail,omitempty"`
	// Since is when the fault began, or began again after it was over. Last is when it was last seen. Count is how often it was
	// seen since Since: events, or checks that found the condition.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Count int       `json:"count"`
	// Boot is the boot ID of the boot in which the fault was last seen.
	Boot string `json:"boot"`
	// Gone is when a condition was first found absent. It is zero while the condition is present, and for events.
	Gone time.Time `json:"gone,omitzero"`
	// Quiet is the quiet period: how long the fault must be absent to end without a remedy. Each recurrence doubles it, up to
	// LongestQuiet.
	Quiet time.Duration `json:"quiet"`
	// Over is when the fault was proven to be over. Zero means that the fault is in effect.
	Over time.Time `json:"over,omitzero"`
}

// String returns the fault's name in messages, such as "XID 79" or "remap-pending".
func (f Fault) String() string {
	if f.Signal == SignalXID {
		return fmt.Sprintf("XID %d", f.XID)
	}
	return string(f.Signal)
}

// InEffect reports whether the fault is not over.
func (f Fault) InEffect() bool { return f.Over.IsZero() }

// Affects reports whether the fault affects the use of its GPU. A fault of the whole GPU affects every use. A fault of a MIG
// device affects the MIG devices that share memory slices with it, and every use of the whole GPU. A monitor is never affected,
// because it is the means of diagnosis.
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

// whole reports whether the whole GPU is affected. A placement that no GPU can have (it is read from a file) counts as the
// whole GPU, since it does not locate the fault.
func (f Fault) whole() bool { return f.Placement.Mask() == 0 }

// covers reports whether f affects every device that g affects, with at least g's severity. Dropping g then improves no device.
func (f Fault) covers(g Fault) bool {
	if f.GPU != g.GPU || !f.InEffect() || f.Severity < g.Severity {
		return false
	}
	return f.whole() || !g.whole() && g.Placement.Mask()&^f.Placement.Mask() == 0
}

// order compares faults by GPU, placement, signal and number: the order of Health.Faults. These fields are the identity of a
// fault; no two faults of a Health compare equal.
func (f Fault) order(g Fault) int {
	if c := cmp.Compare(f.GPU, g.GPU); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(f.Placement.Start, g.Placement.Start), cmp.Compare(f.Placement.Size, g.Placement.Size), cmp.Compare(f.Placement.Profile, g.Placement.Profile),
		cmp.Compare(f.Signal, g.Signal), cmp.Compare(f.XID, g.XID),
	)
}

// FaultsAffecting returns the GPU's faults in effect that affect the use, with severity Warning or higher. The most severe comes
// first; among equally severe ones, the oldest.
func (g GPU) FaultsAffecting(u Use) []Fault {
	return worst(g.Faults, func(f Fault) bool { return f.Affects(u) })
}

// worst returns the faults in effect with severity Warning or higher for which chosen is true, in the order of FaultsAffecting.
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
