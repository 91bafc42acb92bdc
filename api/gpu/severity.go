package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// Severity is how bad a fault is. It decides what becomes of the devices that the fault affects.
type Severity int

// The severities, in ascending order.
const (
	// Harmless concerns a program and not the hardware, such as one that read past its memory. It is counted.
	Harmless Severity = iota
	// Warning is told and changes nothing: the device is still given to claims.
	Warning
	// Critical keeps new claims off the device. What runs on it goes on.
	Critical
	// Fatal means that what runs on the device is lost or its results are wrong: like Critical, and its pods are evicted where
	// the administrator says so.
	Fatal
)

var severities = [...]string{Harmless: "Harmless", Warning: "Warning", Critical: "Critical", Fatal: "Fatal"}

// String returns the severity's name.
func (s Severity) String() string {
	if s < Harmless || s > Fatal {
		return fmt.Sprintf("severity-%d", int(s))
	}
	return severities[s]
}

// MarshalText writes the severity by its name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote, of any release: a severity that this one does not know keeps new claims off the device and
// ends nothing, so it is Critical. Whoever reads what people write uses ParseSeverity.
func (s *Severity) UnmarshalText(text []byte) error {
	known, err := ParseSeverity(string(text))
	if err != nil {
		known = Critical
	}
	*s = known
	return nil
}

// ParseSeverity is the inverse of String.
func ParseSeverity(name string) (Severity, error) {
	if i := slices.Index(severities[:], name); i >= 0 {
		return Severity(i), nil
	}
	return Harmless, fmt.Errorf("severity %q: must be one of %s", name, strings.Join(severities[:], ", "))
}

// Remedy is what ends a fault, and so what proves that it is over.
type Remedy int

// The remedies, in ascending order: a stronger one also does what a weaker one does.
const (
	// Wait: it passes by itself, and is over when it was not there for the quiet time, or as with Reset.
	Wait Remedy = iota
	// Restart: the programs on the device must end. It is over when no claim holds what is affected, or as with Reset.
	Restart
	// Reset: the GPU must be reset. It is over when the GPU answers after a reset, or in another boot, and does not show the
	// fault again. That it went away by itself proves nothing.
	Reset
	// Reboot: the node must be rebooted. It is over when the GPU answers in another boot and does not show the fault again.
	Reboot
	// Replace: the GPU must be replaced. It is over when another GPU is in its place.
	Replace
)

var remedies = [...]string{Wait: "Wait", Restart: "Restart", Reset: "Reset", Reboot: "Reboot", Replace: "Replace"}

// String returns the remedy's name.
func (r Remedy) String() string {
	if r < Wait || r > Replace {
		return fmt.Sprintf("remedy-%d", int(r))
	}
	return remedies[r]
}

// MarshalText writes the remedy by its name.
func (r Remedy) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote, of any release: a remedy that this one does not know is Reset, which does not pass by
// itself. Whoever reads what people write uses ParseRemedy.
func (r *Remedy) UnmarshalText(text []byte) error {
	known, err := ParseRemedy(string(text))
	if err != nil {
		known = Reset
	}
	*r = known
	return nil
}

// ParseRemedy is the inverse of String.
func ParseRemedy(name string) (Remedy, error) {
	if i := slices.Index(remedies[:], name); i >= 0 {
		return Remedy(i), nil
	}
	return Wait, fmt.Errorf("remedy %q: must be one of %s", name, strings.Join(remedies[:], ", "))
}
