package gpu

import "fmt"

// Engine is a kind of fixed-function engine of a GPU.
type Engine int

// The engine kinds in the order in which they are asked whether they bind.
const (
	OFA Engine = iota
	JPEG
	Decoder
	Encoder
	Copy
	engineKinds
)

// String returns the engine's name as it appears in counters and messages.
func (e Engine) String() string {
	switch e {
	case OFA:
		return "ofa-engines"
	case JPEG:
		return "jpeg-engines"
	case Decoder:
		return "decoders"
	case Encoder:
		return "encoders"
	case Copy:
		return "copy-engines"
	default:
		return fmt.Sprintf("engine-%d", int(e))
	}
}

// Engines counts fixed-function engines by kind.
type Engines struct {
	OFA     int `json:"ofa,omitempty"`
	JPEG    int `json:"jpeg,omitempty"`
	Decoder int `json:"decoder,omitempty"`
	Encoder int `json:"encoder,omitempty"`
	Copy    int `json:"copy,omitempty"`
}

// Count returns the number of engines of one kind.
func (e Engines) Count(kind Engine) int { return e.counts()[kind] }

func (e Engines) counts() [engineKinds]int {
	return [engineKinds]int{OFA: e.OFA, JPEG: e.JPEG, Decoder: e.Decoder, Encoder: e.Encoder, Copy: e.Copy}
}

func fromCounts(c [engineKinds]int) Engines {
	return Engines{OFA: c[OFA], JPEG: c[JPEG], Decoder: c[Decoder], Encoder: c[Encoder], Copy: c[Copy]}
}

func (e Engines) combine(other Engines, f func(a, b int) int) Engines {
	a, b := e.counts(), other.counts()
	for i := range a {
		a[i] = f(a[i], b[i])
	}
	return fromCounts(a)
}

func (e Engines) plus(other Engines) Engines {
	return e.combine(other, func(a, b int) int { return a + b })
}

func (e Engines) minus(other Engines) Engines {
	return e.combine(other, func(a, b int) int { return a - b })
}

func (e Engines) atLeast(other Engines) Engines {
	return e.combine(other, func(a, b int) int { return max(a, b) })
}

// bindingEngines returns the kinds that can refuse a placement although its slices are free. A kind
// is left out when the kinds before it already keep every packing within its capacity.
func bindingEngines(g *Geometry) []Engine {
	var binding []Engine
	for kind := range engineKinds {
		if exceeds(g, binding, kind, 0, Engines{}) {
			binding = append(binding, kind)
		}
	}
	return binding
}

// exceeds reports whether placements from the slice on can push the kind over its capacity while
// the kinds that bind already stay within theirs.
func exceeds(g *Geometry, binding []Engine, kind Engine, slice int, used Engines) bool {
	if used.Count(kind) > g.capacity.Count(kind) {
		return true
	}
	if slice >= g.slices {
		return false
	}
	for _, p := range g.profiles {
		for _, start := range p.Starts {
			if start != slice {
				continue
			}
			next := used.plus(p.Engines)
			if within(next, g.capacity, binding) && exceeds(g, binding, kind, slice+p.Size, next) {
				return true
			}
		}
	}
	return exceeds(g, binding, kind, slice+1, used)
}

func within(used, capacity Engines, kinds []Engine) bool {
	for _, kind := range kinds {
		if used.Count(kind) > capacity.Count(kind) {
			return false
		}
	}
	return true
}
