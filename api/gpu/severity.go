package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// Severity is how severe a fault is. It determines what happens to the devices that the fault affects.
type Severity int

// The severities, in ascending order.
const (
	// Harmless is an error of a program and not of the hardware, such as an illegal memory access. It is only counted.
	Harmless Severity = iota
	// Warning is published as a taint without effect: the device is still allocated.
	Warning
	// Critical keeps new claims off the device (taint effect NoSchedule). Running pods continue.
	Critical
	// Fatal means that the work on the device is lost or its results are wrong. It is like Critical, and if the administrator
	// permits eviction, the pods on the device are evicted (NoExecute).
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

// MarshalText encodes the severity by its name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes the output of MarshalText of any release. An unknown name becomes Critical, which keeps new claims off
// the device and evicts no pod. It never returns an error; use ParseSeverity for the input of users.
func (s *Severity) UnmarshalText(text []byte) error {
	known, err := ParseSeverity(string(text))
	if err != nil {
		known = Critical
	}
	*s = known
	return nil
}

// ParseSeverity is the inverse of String. The error lists the names.
func ParseSeverity(name string) (Severity, error) {
	if i := slices.Index(severities[:], name); i >= 0 {
		return Severity(i), nil
	}
	return Harmless, fmt.Errorf("severity %q: must be one of %s", name, strings.Join(severities[:], ", "))
}

// Remedy is what clears a fault. It also determines which proof Settle demands before the fault is over.
type Remedy int

// The remedies, in ascending order: a stronger one includes the weaker ones. A GPU with another UUID in the same place ends
// every fault.
const (
	// Wait means that the fault passes without an action. It is over after its quiet period, or as with Reset.
	Wait Remedy = iota
	// Restart means that the programs on the device must end. The fault is over when no claim holds an affected device, or as
	// with Reset.
	Restart
	// Reset means that the GPU must be reset. The fault is over when the GPU responds after a reset, or in another boot,
	// without showing it again. Its absence alone proves nothing.
	Reset
	// Reboot means that the node must be rebooted. The fault is over when the GPU responds in another boot without showing it
	// again.
	Reboot
	// Replace means that the GPU must be replaced. The fault is over when another GPU is in its place.
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

// MarshalText encodes the remedy by its name.
func (r Remedy) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText decodes the output of MarshalText of any release. An unknown name becomes Reset, whose faults do not end by
// waiting. It never returns an error; use ParseRemedy for the input of users.
func (r *Remedy) UnmarshalText(text []byte) error {
	known, err := ParseRemedy(string(text))
	if err != nil {
		known = Reset
	}
	*r = known
	return nil
}

// ParseRemedy is the inverse of String. The error lists the names.
func ParseRemedy(name string) (Remedy, error) {
	if i := slices.Index(remedies[:], name); i >= 0 {
		return Remedy(i), nil
	}
	return Wait, fmt.Errorf("remedy %q: must be one of %s", name, strings.Join(remedies[:], ", "))
}
