package gpu

import "fmt"

// Shape is what a GPU is used as, and what a published device offers. An idle GPU has no shape. The first allocation determines
// it; it is reset when the last use is released.
type Shape int

// The shapes. Their names (String) are the values of the published attribute "type".
const (
	// None is the shape of an idle GPU.
	None Shape = iota
	// Whole is a GPU that one claim holds.
	Whole
	// MIG is a GPU that is partitioned into MIG devices.
	MIG
	// TimeShare is a GPU that several claims use in turns (time-slicing).
	TimeShare
	// MPS is a GPU that several claims use concurrently through one MPS daemon.
	MPS
	// VFIO is a GPU that is passed through to a virtual machine with vfio-pci.
	VFIO
	// Monitor is access to a GPU for monitoring. It takes no capacity and fits with every other shape.
	Monitor
)

// String returns the published name: gpu, mig, timeshare, mps, vfio or monitor; "idle" for None.
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

// ParseShape is the inverse of String for the shapes that are published, that is, all but None. The error lists the names.
func ParseShape(name string) (Shape, error) {
	for s := Whole; s <= Monitor; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return None, fmt.Errorf("shape %q: must be one of gpu, mig, timeshare, mps, vfio, monitor", name)
}

// MarshalText encodes the shape by its name, since numbers change when shapes are added.
func (s Shape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes the output of MarshalText; any other text is an error.
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

// Shared reports whether several claims can hold the shape on one GPU without partitioning it.
func (s Shape) Shared() bool { return s == TimeShare || s == MPS }

// Use is one way to take a part of a GPU. Placement is set for MIG only, Share for the shared shapes only.
type Use struct {
	Shape     Shape     `json:"shape"`
	Placement Placement `json:"placement,omitzero"`
	Share     Share     `json:"share,omitzero"`
}

// String returns the use in messages: the placement for MIG, the shape's name otherwise.
func (u Use) String() string {
	if u.Shape == MIG {
		return u.Placement.String()
	}
	return u.Shape.String()
}
