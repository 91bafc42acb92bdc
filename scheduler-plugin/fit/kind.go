package fit

import (
	"sync/atomic"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Kind is a GPU model with its tables. It is created once per geometry and shared. Its methods are safe for concurrent use.
type Kind struct {
	// Geometry is nil for a GPU without MIG.
	Geometry *gpu.Geometry

	profiles []profileTable
	// ids are those of the profiles.
	ids []int
	// granule is the number of memory slices in the unit of the masks, granules how many units there are.
	granule, granules int
	// engines are the kinds of engines that a State counts.
	engines []engineDigit
	// exact reports that the engines that can refuse a placement are all counted.
	exact bool
	// rows are by state, computed at the first request of a state.
	rows []atomic.Pointer[stateRow]
	// packed has, by state, one more than packedValue; 0 is an empty entry.
	packed []atomic.Int32
}

// State is what is taken of a GPU, as far as placements depend on it. It is a number in a mixed radix: the low bits are
// the memory slices in units of granules, and every kind of engine that can be the limit is one more digit. It belongs
// to its Kind; zero is an empty GPU. Adding a placement is an addition.
//
// Example: an H100 has 8 memory slices of one granule each. The state with slices 0 and 1 taken is 0b11.
type State int32

// maxStates limits the states of a kind. Known GPUs have at most a thousandth of it. For a geometry with more, read
// from absurd counters, some engines are not counted (exact is false).
const maxStates = 1 << 20

// engineDigit is a kind of engine whose number is a digit of the state.
type engineDigit struct {
	kind gpu.Engine
	// place is what one engine counts in the state, capacity how many there are.
	place, capacity int32
}

// profileTable is a MIG profile with its placements.
type profileTable struct {
	// weight is what a free placement is worth, packed what one is worth that an expected demand can use;
	// 0 where none is expected.
	weight, packed int32
	// placements are the legal placements, in the order in which equal losses are preferred.
	placements []legalPlacement
}

// legalPlacement is a legal placement and what it adds to a state.
type legalPlacement struct {
	placement gpu.Placement
	mask      State
	cost      State
}

// NewKind returns the kind of the geometry. Its tables are filled on use.
func NewKind(g *gpu.Geometry, w Weights) *Kind {
	k := &Kind{Geometry: g, granule: g.Granule(), exact: true}
	k.granules = max(1, g.Slices()) / k.granule
	states := k.countStates(g)
	weights := placementWeights(g.Profiles())
	for i, p := range g.Profiles() {
		own := profileTable{weight: weights[i], placements: k.legalPlacements(p)}
		if w.expects(g.Profiles(), p) {
			own.packed = int32(p.Size * Packed)
		}
		k.profiles = append(k.profiles, own)
		k.ids = append(k.ids, p.ID)
	}
	k.rows, k.packed = make([]atomic.Pointer[stateRow], states), make([]atomic.Int32, states)
	return k
}

// countStates chooses the engines that are counted and returns the number of states.
func (k *Kind) countStates(g *gpu.Geometry) int {
	states := 1 << k.granules
	for _, kind := range g.BindingEngines() {
		capacity, most := g.Capacity().Count(kind), 0
		for _, p := range g.Profiles() {
			most = max(most, p.Engines.Count(kind))
		}
		switch {
		case most == 0 || capacity/most >= k.granules:
			// There are enough for everything that the slices have room for.
		case capacity >= maxStates/states:
			k.exact = false
		default:
			k.engines = append(k.engines, engineDigit{kind: kind, place: int32(states), capacity: int32(capacity)})
			states *= capacity + 1
		}
	}
	return states
}

// legalPlacements returns the placements of the profile in the order of the geometry.
func (k *Kind) legalPlacements(p gpu.Profile) []legalPlacement {
	var all []legalPlacement
	for _, start := range p.Starts {
		placement := gpu.Placement{Profile: p.ID, Start: start, Size: p.Size}
		mask := k.granuleMask(placement.Mask())
		all = append(all, legalPlacement{placement: placement, mask: mask, cost: mask + k.engineDigits(p.Engines)})
	}
	return all
}

// Empty returns the state of a GPU that holds nothing.
func (k *Kind) Empty() State { return 0 }

// fullState returns the state of a GPU without room for any placement.
func (k *Kind) fullState() State { return 1<<k.granules - 1 }

// State returns the state of the GPU. Withheld slices count as taken; a GPU that is in use as a whole or
// shared is full.
func (k *Kind) State(o gpu.Occupancy) State { return k.stateOf(&o) }

// stateOf is State without a copy of the occupancy.
func (k *Kind) stateOf(o *gpu.Occupancy) State {
	if shape := o.Shape(); shape != gpu.None && shape != gpu.MIG {
		return k.fullState()
	}
	state := k.granuleMask(o.Taken() | o.Withheld())
	if len(k.engines) > 0 {
		state += k.engineDigits(o.Engines())
	}
	return state
}

// granuleMask returns the memory slices in granules. A granule of which a part is taken is taken.
func (k *Kind) granuleMask(m gpu.Mask) State {
	if k.granule == 1 {
		return State(m)
	}
	var state State
	for i := range k.granules {
		if m.Overlaps(gpu.SpanMask(i*k.granule, k.granule)) {
			state |= 1 << i
		}
	}
	return state
}

// engineDigits returns what the engines add to a state.
func (k *Kind) engineDigits(e gpu.Engines) State {
	var state State
	for _, c := range k.engines {
		state += State(c.place * min(int32(e.Count(c.kind)), c.capacity))
	}
	return state
}

// isFree reports whether the placement is free in the state.
func (k *Kind) isFree(s State, w legalPlacement) bool {
	if s&w.mask != 0 {
		return false
	}
	for _, c := range k.engines {
		radix := State(c.capacity + 1)
		if s/State(c.place)%radix+w.cost/State(c.place)%radix >= radix {
			return false
		}
	}
	return true
}

// Release returns the state without the placement, which it must hold. An unknown placement changes nothing.
func (k *Kind) Release(s State, p gpu.Placement) State {
	for _, profile := range k.profiles {
		for _, w := range profile.placements {
			if w.placement == p {
				return s - w.cost
			}
		}
	}
	return s
}

// profileIndex returns the position of the profile, or -1.
func (k *Kind) profileIndex(id int) int {
	for i, known := range k.ids {
		if known == id {
			return i
		}
	}
	return -1
}
