package gpu

import "fmt"

// Mode is the MIG mode of a GPU as the hardware answers it.
type Mode int

// The MIG modes.
const (
	// ModeUnsupported is a GPU without MIG.
	ModeUnsupported Mode = iota
	// ModeDisabled is a MIG-capable GPU with MIG off.
	ModeDisabled
	// ModeEnabled is a GPU with MIG on.
	ModeEnabled
)

// String returns the mode for messages.
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

// MarshalText writes the mode by its name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (m *Mode) UnmarshalText(text []byte) error {
	for mode := ModeUnsupported; mode <= ModeEnabled; mode++ {
		if mode.String() == string(text) {
			*m = mode
			return nil
		}
	}
	return fmt.Errorf("MIG mode %q: must be one of unsupported, disabled, enabled", text)
}
