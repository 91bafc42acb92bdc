package gpu

import (
	"slices"
	"time"
)

// Situation is what is known beside the hardware's own words when it is decided what is over.
type Situation struct {
	Now time.Time
	// Boot is the present boot.
	Boot string
	// Checked are the last looks at the GPUs that answered, by name; the Health has taken them in.
	Checked map[string]Checkup
	// Held is what claims hold, All whether that is all.
	Held []Device
	All  bool
}

// Settle ends the faults that are proven to be over, judges the others by the rules in force, and forgets what was over for long.
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

// reset is when the GPU was last reset in this boot; zero: it was not.
func (h Health) reset(gpuName, boot string) time.Time {
	if h.Boot != boot {
		return time.Time{}
	}
	return h.Resets[gpuName]
}

// dated returns the fault without times that lie ahead: a clock that was wrong must not keep it for years.
func (f Fault) dated(now time.Time) Fault {
	for _, t := range []*time.Time{&f.Since, &f.Last, &f.Gone, &f.Over} {
		if t.Sub(now) > clockError {
			*t = now
		}
	}
	return f
}

// proven reports whether the fault is over. A stronger remedy does what a weaker one does.
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

// left is when the fault was last there; zero while it is.
func (f Fault) left() time.Time {
	if f.Signal == SignalXID || !f.Signal.known() {
		return f.Last
	}
	return f.Gone
}

// quiet reports whether the fault stayed away long enough.
func (f Fault) quiet(now time.Time) bool {
	left := f.left()
	return !left.IsZero() && now.Sub(left) >= f.Quiet
}

// released reports whether no claim holds what is affected.
func (f Fault) released(s Situation) bool {
	return s.All && !f.left().IsZero() && !slices.ContainsFunc(s.Held, func(d Device) bool { return d.GPU == f.GPU && f.Affects(d.Use) })
}

// renewed reports whether the GPU was begun anew after the fault, by another boot or the reset, and answers since without showing it.
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

// before reports whether the fault is from before the reset. A condition may show for a while after it: links must be trained again.
func (f Fault) before(reset time.Time) bool {
	if f.Signal == SignalXID {
		return reset.After(f.Last)
	}
	return reset.After(f.Since) && f.Last.Before(reset.Add(settling))
}

// replaced reports whether another GPU answers in its place.
func (f Fault) replaced(s Situation) bool {
	c, answers := s.Checked[f.GPU]
	return answers && c.UUID != "" && f.UUID != "" && c.UUID != f.UUID
}
