package arrivals

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Stream is a sequence of demands and of their ends.
type Stream struct {
	// Demands are in order of arrival.
	Demands []Demand
	// Steps are the arrivals and ends in order of time. A replay skips the end of a demand that was not
	// served.
	Steps []Step
	// Warm is the number of demands before the first that counts.
	Warm int
}

// Demand is one demand. The bench defines the meaning of Kind.
type Demand struct {
	Kind int
	// Arrives and Leaves are in mean lifetimes, or in the unit of a trace.
	Arrives, Leaves float64
}

// Step is one step of a stream: the demand of the position arrives or leaves.
type Step struct {
	Demand int
	Leaves bool
}

// Counts reports whether the demand is past the warm-up.
func (s *Stream) Counts(demand int) bool { return demand >= s.Warm }

// Lifetime draws the lifetime of a demand.
type Lifetime func(*rand.Rand) float64

// Exponential draws memoryless lifetimes of mean 1.
func Exponential(r *rand.Rand) float64 { return r.ExpFloat64() }

// Lognormal draws lifetimes of mean 1 with a heavy tail: sigma 2.
func Lognormal(r *rand.Rand) float64 {
	const sigma = 2
	return math.Exp(sigma*r.NormFloat64() - sigma*sigma/2)
}

// Poisson is a stream of independent arrivals.
type Poisson struct {
	// Rate is the number of arrivals per unit of time.
	Rate float64
	// Shares are the probabilities of the kinds; their sum is 1.
	Shares   []float64
	Lifetime Lifetime
	// Count is the number of arrivals; the first quarter is the warm-up.
	Count int
}

// Stream draws a stream: for equal seeds the same.
func (p Poisson) Stream(seed uint64) *Stream {
	// Times, kinds and lifetimes have a random source each, so that streams of one seed differ only by
	// the changed parameter.
	times, kinds, lives := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)), rand.New(rand.NewPCG(seed, 3))
	demands := make([]Demand, p.Count)
	now := 0.0
	for i := range demands {
		now += times.ExpFloat64() / p.Rate
		demands[i] = Demand{Kind: draw(kinds.Float64(), p.Shares), Arrives: now, Leaves: now + p.Lifetime(lives)}
	}
	return New(demands, p.Count/4)
}

// draw returns the kind in whose share the number from 0 to 1 falls.
func draw(u float64, shares []float64) int {
	last := 0
	for kind, share := range shares {
		if share == 0 {
			continue
		}
		last = kind
		if u < share {
			return kind
		}
		u -= share
	}
	return last
}

// New returns the stream of the demands, which are in order of arrival.
func New(demands []Demand, warm int) *Stream {
	s := &Stream{Demands: demands, Warm: warm, Steps: make([]Step, 0, 2*len(demands))}
	for i := range demands {
		s.Steps = append(s.Steps, Step{Demand: i}, Step{Demand: i, Leaves: true})
	}
	slices.SortFunc(s.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(s.at(a), s.at(b)), cmp.Compare(a.Demand, b.Demand), cmp.Compare(order(a), order(b)))
	})
	return s
}

// at returns the time of the step.
func (s *Stream) at(step Step) float64 {
	if step.Leaves {
		return s.Demands[step.Demand].Leaves
	}
	return s.Demands[step.Demand].Arrives
}

// order puts the arrival of a demand that does not stay before its end.
func order(s Step) int {
	if s.Leaves {
		return 1
	}
	return 0
}
