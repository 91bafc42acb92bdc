package gpu

import "fmt"

// Shape is what a GPU is used as, and what a published device offers. An idle GPU has none: the
// first use decides the shape, the last release gives it back.
type Shape int

// The shapes. Their names are the values of the attribute "type".
const (
	// None is the shape of an idle GPU.
	None Shape = iota
	// Whole is a GPU given to one claim.
	Whole
	// MIG is a GPU carved into GPU instances.
	MIG
	// TimeShare is a GPU whose claims take turns.
	TimeShare
	// MPS is a GPU whose claims run side by side under one MPS daemon.
	MPS
	// VFIO is a GPU passed through to a virtual machine.
	VFIO
	// Monitor is a view of a GPU for monitoring: it takes nothing from anybody.
	Monitor
)

// String returns the shape's name as published: gpu, mig, timeshare, mps, vfio, monitor; "idle"
// for None.
func (s Shape) String() string {
	switch s {
	case None:
		return "idle"
	case Whole:
		return "gpu"
	case MIG:
		return "mig"
	case TimeShare:
		return "timeshare"
	case MPS:
		return "mps"
	case VFIO:
		return "vfio"
	case Monitor:
		return "monitor"
	}
	return fmt.Sprintf("shape-%d", int(s))
}

// ParseShape is the inverse of String for the shapes that can be published.
func ParseShape(name string) (Shape, error) {
	for s := Whole; s <= Monitor; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return None, fmt.Errorf("shape %q: must be one of gpu, mig, timeshare, mps, vfio, monitor", name)
}

// MarshalText writes the shape by its name: numbers would change their meaning with the next shape.
func (s Shape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Shape) UnmarshalText(text []byte) error {
	if string(text) == None.String() {
		*s = None
		return nil
	}
	parsed, err := ParseShape(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// Shared reports whether several claims may hold the shape on one GPU at the same time without
// slices of their own.
func (s Shape) Shared() bool { return s == TimeShare || s == MPS }

// Use is one way to take a part of a GPU: a shape and, for MIG, the placement, for a shared shape the
// share.
type Use struct {
	Shape     Shape     `json:"shape"`
	Placement Placement `json:"placement,omitzero"`
	Share     Share     `json:"share,omitzero"`
}

// String returns the use for messages.
func (u Use) String() string {
	if u.Shape == MIG {
		return u.Placement.String()
	}
	return u.Shape.String()
}
