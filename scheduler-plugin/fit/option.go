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

// stateRow is what the tables know of one state.
type stateRow struct {
	// value is that of Value, packed the part of it that is of what can be used at the same time.
	value, packed int32
	// options are by position of the profile.
	options [][]Option
	// ranks are, by position of the profile and start in granules, one more than the position in its
	// options, zero for what is not free.
	ranks []uint8
}

// Value returns what the free placements of the state are worth together (V). Every one counts Unit per
// memory slice; beside that every slice counts Packed that the expected demands could fill at the same time.
// The first part is how many demands could come, whichever they are; the second sees the slices that are
// lost for good while the instances beside them live.
func (k *Kind) Value(s State) int32 { return k.rowOf(s).value }

// Options returns the free placements of the profile, given by id: the one of least loss first, of equal
// ones the one that would cost an empty GPU least, then the one with the highest start. The caller must
// not change it. Nothing is allocated for a state that was asked for before.
func (k *Kind) Options(s State, profile int) []Option {
	position := k.profileIndex(profile)
	if position < 0 {
		return nil
	}
	return k.rowOf(s).options[position]
}

// Best returns the first of the Options, and false when there are none.
func (k *Kind) Best(s State, profile int) (Option, bool) {
	options := k.Options(s, profile)
	if len(options) == 0 {
		return Option{}, false
	}
	return options[0], true
}

// rowOf returns the row of the state. Two callers that make one at once make equal ones.
func (k *Kind) rowOf(s State) *stateRow {
	if r := k.rows[s].Load(); r != nil {
		return r
	}
	r := k.newStateRow(s)
	k.rows[s].Store(r)
	return r
}

func (k *Kind) newStateRow(s State) *stateRow {
	r := &stateRow{packed: k.packedValue(s), options: make([][]Option, len(k.profiles)), ranks: make([]uint8, len(k.profiles)*k.granules)}
	r.value = k.openValue(s) + r.packed
	for i, p := range k.profiles {
		r.options[i] = k.optionsOf(s, r.value, p)
		for rank, o := range r.options[i] {
			r.ranks[i*k.granules+o.Placement.Start/k.granule] = uint8(rank + 1)
		}
	}
	return r
}

// optionAt returns the option of a placement of the profile, given by position, and its rank among the
// options; nil when it is not free or not legal.
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

// openValue returns what the placements that are free are worth.
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

// packedValue returns what the slices are worth that expected demands could fill at the same time.
func (k *Kind) packedValue(s State) int32 {
	var most int32
	for _, p := range k.profiles {
		if p.packed == 0 {
			continue
		}
		for _, w := range p.placements {
			if k.isFree(s, w) {
				most = max(most, p.packed+k.rowOf(s+w.cost).packed)
			}
		}
	}
	return most
}
