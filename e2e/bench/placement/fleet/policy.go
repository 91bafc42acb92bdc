package fleet

import (
	"slices"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
)

// Choice is a placement on a GPU.
type Choice struct {
	GPU, Placement int
}

// Policy chooses the placement of a profile.
type Policy interface {
	// Choose returns the choice for the demand, whose kind is the position of a profile, and false when
	// no GPU has room.
	Choose(f *Fleet, d arrivals.Demand) (Choice, bool)
}

// Ranked is a policy that computes a bid for every GPU and takes the best; of equal bids the first GPU's.
// A bid depends on the GPU's state alone, so that all states are sorted once.
type Ranked struct {
	// order is by profile.
	order [][]ranked
}

// ranked is the placement of the bid of a GPU in a state. Rank counts the different bids that are better.
type ranked struct {
	state, placement, rank int
}

// ordered is implemented by bids; a negative number means that the receiver is the better one.
type ordered[B any] interface {
	Compare(other B) int
}

// NewRanked returns the policy of the bids, each with its placement; false where nothing fits.
func NewRanked[B ordered[B]](s *States, bid func(state, profile int) (B, int, bool)) *Ranked {
	r := &Ranked{order: make([][]ranked, len(s.Profiles))}
	for profile := range s.Profiles {
		bids := make([]B, len(s.Held))
		order := r.order[profile]
		for state := range s.Held {
			b, placement, ok := bid(state, profile)
			if ok {
				bids[state] = b
				order = append(order, ranked{state: state, placement: placement})
			}
		}
		slices.SortStableFunc(order, func(a, b ranked) int { return bids[a.state].Compare(bids[b.state]) })
		for i := 1; i < len(order); i++ {
			order[i].rank = order[i-1].rank
			if bids[order[i-1].state].Compare(bids[order[i].state]) != 0 {
				order[i].rank++
			}
		}
		r.order[profile] = order
	}
	return r
}

// Key is a bid of numbers: the smallest is best, compared one by one.
type Key [3]int

// Compare returns a negative number when k is the better one.
func (k Key) Compare(other Key) int { return slices.Compare(k[:], other[:]) }

// Least returns the policy that takes the smallest key, on a GPU the first placement of the preference
// that has it.
func Least(s *States, prefer Preference, key func(state, placement int) Key) *Ranked {
	return NewRanked(s, func(state, profile int) (Key, int, bool) {
		least, at := Key{}, None
		for _, placement := range prefer[profile] {
			if s.Taken[state][placement] == None {
				continue
			}
			if k := key(state, placement); at == None || k.Compare(least) < 0 {
				least, at = k, placement
			}
		}
		return least, at, at != None
	})
}

// Choose implements Policy.
func (r *Ranked) Choose(f *Fleet, d arrivals.Demand) (Choice, bool) {
	choice, rank := Choice{GPU: None}, 0
	for _, next := range r.order[d.Kind] {
		if choice.GPU != None && next.rank != rank {
			break
		}
		if f.Count[next.state] == 0 {
			continue
		}
		if first := f.First(next.state); choice.GPU == None || first < choice.GPU {
			choice, rank = Choice{GPU: first, Placement: next.placement}, next.rank
		}
	}
	return choice, choice.GPU != None
}

// FirstFit takes the first GPU that has room, there the first placement in the order of Preference.
type FirstFit struct {
	Prefer Preference
}

// Choose implements Policy.
func (p FirstFit) Choose(f *Fleet, d arrivals.Demand) (Choice, bool) {
	for gpu, state := range f.State {
		if f.States.Open[state][d.Kind] == 0 {
			continue
		}
		for _, placement := range p.Prefer[d.Kind] {
			if f.Taken[state][placement] != None {
				return Choice{GPU: gpu, Placement: placement}, true
			}
		}
	}
	return Choice{}, false
}

// Preference is an order of the placements, by profile.
type Preference [][]int

// LowStart is the order of the starts.
func LowStart(s *States) Preference {
	prefer := make(Preference, len(s.Profiles))
	for placement, profile := range s.Profile {
		prefer[profile] = append(prefer[profile], placement)
	}
	return prefer
}

// Published is the order in which an agent publishes the placements: those of least loss first.
func Published(s *States) Preference {
	prefer := make(Preference, len(s.Profiles))
	for i, profile := range s.Profiles {
		for _, p := range s.Geometry.ByLoss(profile.ID) {
			prefer[i] = append(prefer[i], slices.Index(s.Placements, p))
		}
	}
	return prefer
}
