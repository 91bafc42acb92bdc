package gpu

import (
	"slices"
	"time"
)

// Situation is the evidence with which Settle decides which faults are over.
type Situation struct {
	// Now is the current time.
	Now time.Time
	// Boot is the current boot ID; empty if unknown, which proves nothing.
	Boot string
	// Checked has, by GPU name, the last checkup of each GPU that responded. All of them were recorded with Health.Check.
	Checked map[string]Checkup
	// Held are the devices that claims hold. All reports that the list is complete; otherwise it proves nothing.
	Held []Device
	All  bool
}

// Settle ends the faults that are proven to be over, updates the severity and remedy of faults to the rules, and removes faults
// that have been over for LongestQuiet. Faults with signals of another release keep their severity and remedy. It is idempotent
// for equal arguments.
func (h Health) Settle(r Rules, s Situation) Health {
	kept := make([]Fault, 0, len(h.Faults))
	for _, f := range h.Faults {
		if f.Signal.known() {
			j := r.Judge(f.Signal, f.XID)
			f.Severity, f.Remedy = j.Severity, j.Remedy
		}
		f = f.dated(s.Now)
		if f.InEffect() && f.proven(s, h.reset(f.GPU, s.Boot)) {
			f.Over = s.Now
		}
		if f.InEffect() || s.Now.Sub(f.Over) < LongestQuiet {
			kept = append(kept, f)
		}
	}
	if h.Faults = kept; len(kept) == 0 {
		h.Faults = nil
	}
	return h
}

// reset returns when the GPU was last reset in this boot; zero if it was not.
func (h Health) reset(gpuName, boot string) time.Time {
	if h.Boot != boot {
		return time.Time{}
	}
	return h.Resets[gpuName]
}

// dated returns the fault with times in the future replaced by now. Otherwise a clock that was wrong for a moment would keep
// the fault in effect until that time.
func (f Fault) dated(now time.Time) Fault {
	for _, t := range []*time.Time{&f.Since, &f.Last, &f.Gone, &f.Over} {
		if t.Sub(now) > clockError {
			*t = now
		}
	}
	return f
}

// proven reports whether the fault is proven to be over, by the demand of its remedy (the constants of Remedy). A stronger
// remedy includes the weaker ones: a reset also proves what a restart would.
func (f Fault) proven(s Situation, reset time.Time) bool {
	switch {
	case f.replaced(s):
		return true
	case f.Severity == Harmless || f.Remedy == Wait:
		return f.quiet(s.Now) || f.renewed(s, reset)
	case f.Remedy == Restart:
		return f.released(s) || f.renewed(s, reset)
	case f.Remedy == Reset:
		return f.renewed(s, reset)
	case f.Remedy == Reboot:
		return f.renewed(s, time.Time{})
	}
	return false
}

// left returns since when the fault is absent: for a condition when it was found absent, zero while it is present; for an
// event, and for a signal of another release, when it was last seen.
func (f Fault) left() time.Time {
	if f.Signal == SignalXID || !f.Signal.known() {
		return f.Last
	}
	return f.Gone
}

// quiet reports whether the fault was absent for its quiet period.
func (f Fault) quiet(now time.Time) bool {
	left := f.left()
	return !left.IsZero() && now.Sub(left) >= f.Quiet
}

// released reports whether no claim holds an affected device, and the fault is not present.
func (f Fault) released(s Situation) bool {
	return s.All && !f.left().IsZero() && !slices.ContainsFunc(s.Held, func(d Device) bool { return d.GPU == f.GPU && f.Affects(d.Use) })
}

// renewed reports whether the GPU was initialized after the fault, by another boot or by the given reset, and responded to a
// checkup since then without showing the fault.
func (f Fault) renewed(s Situation, reset time.Time) bool {
	c, answers := s.Checked[f.GPU]
	if !answers || !c.At.After(f.Last) {
		return false
	}
	if s.Boot != "" && f.Boot != s.Boot {
		return true
	}
	return !reset.IsZero() && !c.At.Before(reset) && f.before(reset)
}

// before reports whether the fault is from before the reset. A condition that began before the reset may be reported until
// settling has passed, since links are trained again.
func (f Fault) before(reset time.Time) bool {
	if f.Signal == SignalXID {
		return reset.After(f.Last)
	}
	return reset.After(f.Since) && f.Last.Before(reset.Add(settling))
}

// replaced reports whether a GPU with another UUID responds at the fault's PCI address.
func (f Fault) replaced(s Situation) bool {
	c, answers := s.Checked[f.GPU]
	return answers && c.UUID != "" && f.UUID != "" && c.UUID != f.UUID
}
