package params

import "k8s.io/apimachinery/pkg/util/validation/field"

// Settings are the parameters of one device after precedence, defaults and validation. The zero value
// leaves everything as it is. Settings are comparable.
type Settings struct {
	// TimeSlice is the wished time-slice class, the text of an Interval; empty leaves the GPU's.
	TimeSlice string
	// MPS are the limits of the claim's own MPS daemon.
	MPS MPSSettings
}

// MPSSettings are the limits of an MPS daemon.
type MPSSettings struct {
	// Private asks for a daemon of the claim's own; without it the limits are zero.
	Private bool
	// ActiveThreadPercentage is 1 to 100, or 0 for no limit.
	ActiveThreadPercentage int
	// PinnedMemoryBytes is a number of bytes, or 0 for no limit.
	PinnedMemoryBytes int64
}

func (c *GPUConfig) apply(s *Settings) {
	if c.TimeSlicing != nil {
		s.TimeSlice = string(c.TimeSlicing.Interval)
	}
	c.MPS.apply(s)
}

func (c *MIGConfig) apply(s *Settings) { c.MPS.apply(s) }

func (m *MPS) apply(s *Settings) {
	if m == nil {
		return
	}
	s.MPS = MPSSettings{Private: true}
	if m.ActiveThreadPercentage != nil {
		s.MPS.ActiveThreadPercentage = *m.ActiveThreadPercentage
	}
	s.MPS.PinnedMemoryBytes, _ = memorySize(m.PinnedMemoryLimit)
}

// offered returns an error for settings that the types know and this version cannot honour: better
// refused than silently without effect.
func (s Settings) offered() error {
	const reason = "not offered by this version of Tessera"
	var errs field.ErrorList
	if s.TimeSlice != "" {
		errs = append(errs, field.Forbidden(field.NewPath("timeSlicing"), reason))
	}
	if s.MPS.Private {
		errs = append(errs, field.Forbidden(field.NewPath("mps"), reason))
	}
	return errs.ToAggregate()
}
