package gpu

import "fmt"

// Engine is a kind of fixed-function engine of a GPU.
type Engine int

// The engine kinds, in the order in which bindingEngines examines them.
const (
	// OFA is the optical flow accelerator.
	OFA Engine = iota
	// Decoder is a video decoder (NVDEC).
	Decoder
	// Encoder is a video encoder (NVENC).
	Encoder
	// JPEG is a JPEG decoder (NVJPG).
	JPEG
	// Copy is a copy engine (CE).
	Copy
)

const engineKinds = int(Copy) + 1

// String returns the name of the kind in published counters and in messages.
func (e Engine) String() string {
	switch e {
	case OFA:
		return "ofa-engines"
	case Decoder:
		return "decoders"
	case Encoder:
		return "encoders"
	case JPEG:
		return "jpeg-engines"
	case Copy:
		return "copy-engines"
	default:
		return fmt.Sprintf("engine-%d", int(e))
	}
}

// Engines has the number of engines of each kind. Fields are those of nvmlGpuInstanceProfileInfo_t.
type Engines struct {
	OFA     int `json:"ofa,omitempty"`
	JPEG    int `json:"jpeg,omitempty"`
	Decoder int `json:"decoder,omitempty"`
	Encoder int `json:"encoder,omitempty"`
	Copy    int `json:"copy,omitempty"`
}

// Count returns the number of engines of the kind. It panics if the kind is not one of the constants.
func (e Engines) Count(kind Engine) int { return e.counts()[kind] }

func (e Engines) counts() [engineKinds]int {
	return [engineKinds]int{OFA: e.OFA, JPEG: e.JPEG, Decoder: e.Decoder, Encoder: e.Encoder, Copy: e.Copy}
}

func fromCounts(c [engineKinds]int) Engines {
	return Engines{OFA: c[OFA], JPEG: c[JPEG], Decoder: c[Decoder], Encoder: c[Encoder], Copy: c[Copy]}
}

// combine applies f to the counts of each kind.
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

// atLeast returns the larger count of each kind.
func (e Engines) atLeast(other Engines) Engines {
	return e.combine(other, func(a, b int) int { return max(a, b) })
}

// only returns the counts of the given kinds; all others are zero.
func (e Engines) only(kinds []Engine) Engines {
	var kept [engineKinds]int
	for _, kind := range kinds {
		kept[kind] = e.Count(kind)
	}
	return fromCounts(kept)
}

// exceed reports whether there are more than most engines of a kind, or fewer than 0.
func (e Engines) exceed(most int) bool {
	for _, count := range e.counts() {
		if count < 0 || count > most {
			return true
		}
	}
	return false
}

// lacking returns the first of the given kinds of which e has fewer engines than needed, and false if e has enough.
func (e Engines) lacking(needed Engines, kinds []Engine) (Engine, bool) {
	for _, kind := range kinds {
		if needed.Count(kind) > e.Count(kind) {
			return kind, true
		}
	}
	return 0, false
}
