package fit

import (
	"cmp"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Option is a free placement.
type Option struct {
	Placement gpu.Placement
	// Next is the state after the placement, Loss the value it takes away: Value before less Value after.
	Next State
	Loss int32
}

// stateRow is what the tables hold for one state.
type stateRow struct {
	// value is that of Value.
	value int32
	// options are by position of the profile.
	options [][]Option
	// ranks are, by position of the profile and start in granules, one more than the position in its
	// options, zero for what is not free.
	ranks []uint8
}

// Value returns the value of the free placements of the state (V): Unit per memory slice of every free placement, plus
// Packed per memory slice that the expected profiles could fill at the same time. The first part counts how many
// requests could be served, whichever they are. The second one excludes memory slices that stay unusable as long as
// their neighbors are used.
func (k *Kind) Value(s State) int32 { return k.rowOf(s).value }

// Options returns the free placements of the profile with the id: least loss first, then least cost on an empty GPU,
// then highest start. The caller must not change the result. It does not allocate for a state that was used before.
func (k *Kind) Options(s State, profile int) []Option {
	position := k.profileIndex(profile)
	if position < 0 {
		return nil
	}
	return k.rowOf(s).options[position]
}

// Best returns the first of the Options, and false if there are none.
func (k *Kind) Best(s State, profile int) (Option, bool) {
	options := k.Options(s, profile)
	if len(options) == 0 {
		return Option{}, false
	}
	return options[0], true
}

// rowOf returns the row of the state. Concurrent callers may compute equal rows.
func (k *Kind) rowOf(s State) *stateRow {
	if r := k.rows[s].Load(); r != nil {
		return r
	}
	r := k.newStateRow(s)
	k.rows[s].Store(r)
	return r
}

func (k *Kind) newStateRow(s State) *stateRow {
	r := &stateRow{value: k.openValue(s) + k.packedValue(s), options: make([][]Option, len(k.profiles)), ranks: make([]uint8, len(k.profiles)*k.granules)}
	for i, p := range k.profiles {
		r.options[i] = k.optionsOf(s, r.value, p)
		for rank, o := range r.options[i] {
			r.ranks[i*k.granules+o.Placement.Start/k.granule] = uint8(rank + 1)
		}
	}
	return r
}

// optionAt returns the option of a placement and its rank among the options of the profile, given by position; nil if
// the placement is not free or not legal.
func (k *Kind) optionAt(r *stateRow, profile int, p gpu.Placement) (optionAt *Option, rank int) {
	start := p.Start
	if k.granule > 1 {
		if start%k.granule != 0 {
			return nil, 0
		}
		start /= k.granule
	}
	if profile < 0 || start < 0 || start >= k.granules {
		return nil, 0
	}
	rank = int(r.ranks[profile*k.granules+start]) - 1
	if rank < 0 {
		return nil, 0
	}
	optionAt = &r.options[profile][rank]
	if optionAt.Placement.Size != p.Size {
		return nil, 0
	}
	return optionAt, rank
}

func (k *Kind) optionsOf(s State, before int32, p profileTable) []Option {
	empty := k.openValue(0)
	var options []Option
	for _, w := range p.placements {
		if k.isFree(s, w) {
			next := s + w.cost
			options = append(options, Option{Placement: w.placement, Next: next, Loss: before - k.openValue(next) - k.packedValue(next)})
		}
	}
	fromEmpty := func(o Option) int32 { return empty - k.openValue(o.Next-s) }
	slices.SortFunc(options, func(a, b Option) int {
		return cmp.Or(cmp.Compare(a.Loss, b.Loss), cmp.Compare(fromEmpty(a), fromEmpty(b)), cmp.Compare(b.Placement.Start, a.Placement.Start))
	})
	return options
}

// openValue returns the value of all free placements.
func (k *Kind) openValue(s State) int32 {
	var value int32
	for _, p := range k.profiles {
		for _, w := range p.placements {
			if k.isFree(s, w) {
				value += p.weight
			}
		}
	}
	return value
}

// packedValue returns the value of the memory slices that expected profiles can fill at the same time: the best
// sequence of placements, by recursion over states. The results are cached apart from the rows, which are large: the
// recursion reaches states that no GPU is ever in.
func (k *Kind) packedValue(s State) int32 {
	if known := k.packed[s].Load(); known > 0 {
		return known - 1
	}
	var most int32
	for _, p := range k.profiles {
		if p.packed == 0 {
			continue
		}
		for _, w := range p.placements {
			if k.isFree(s, w) {
				most = max(most, p.packed+k.packedValue(s+w.cost))
			}
		}
	}
	k.packed[s].Store(most + 1)
	return most
}
