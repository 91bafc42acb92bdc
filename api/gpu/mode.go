package gpu

import "fmt"

// Mode is the MIG mode of a GPU (nvmlDeviceGetMigMode).
type Mode int

// The MIG modes.
const (
	// ModeUnsupported is the mode of a GPU without MIG.
	ModeUnsupported Mode = iota
	// ModeDisabled is the mode of a MIG-capable GPU with MIG disabled.
	ModeDisabled
	// ModeEnabled is the mode of a GPU with MIG enabled.
	ModeEnabled
)

// String returns the mode's name: unsupported, disabled, enabled, or unknown.
func (m Mode) String() string {
	switch m {
	case ModeUnsupported:
		return "unsupported"
	case ModeDisabled:
		return "disabled"
	case ModeEnabled:
		return "enabled"
	}
	return "unknown"
}

// MarshalText encodes the mode by its name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText decodes the output of MarshalText; any other text is an error.
func (m *Mode) UnmarshalText(text []byte) error {
	for mode := ModeUnsupported; mode <= ModeEnabled; mode++ {
		if mode.String() == string(text) {
			*m = mode
			return nil
		}
	}
	return fmt.Errorf("MIG mode %q: must be one of unsupported, disabled, enabled", text)
}
