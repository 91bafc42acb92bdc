package fleet

import (
	"slices"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
)

// Tally is the result of streams after their warm-ups.
type Tally struct {
	// Offered and Accepted are demands by profile, Sizes the memory slices of the profiles.
	Offered, Accepted, Sizes []int
	// allocated and stranded are sums over the arrivals; the means over the moments of independent arrivals
	// are those over time.
	allocated, stranded float64
	// moves is the number of instances that were moved.
	moves int
}

// Plus returns the sum of both.
func (t Tally) Plus(other Tally) Tally {
	if t.Sizes == nil {
		return other
	}
	return Tally{
		Offered: plus(t.Offered, other.Offered), Accepted: plus(t.Accepted, other.Accepted), Sizes: t.Sizes,
		allocated: t.allocated + other.allocated, stranded: t.stranded + other.stranded, moves: t.moves + other.moves,
	}
}

func plus(a, b []int) []int {
	sum := slices.Clone(a)
	for i := range b {
		sum[i] += b[i]
	}
	return sum
}

// Acceptance returns the share of the requested slices that were served.
func (t Tally) Acceptance() float64 {
	offered, accepted := 0, 0
	for profile, size := range t.Sizes {
		offered += size * t.Offered[profile]
		accepted += size * t.Accepted[profile]
	}
	return float64(accepted) / float64(max(1, offered))
}

// Of returns the share of a profile's demands that were served.
func (t Tally) Of(profile int) float64 {
	return float64(t.Accepted[profile]) / float64(max(1, t.Offered[profile]))
}

// Allocated returns the mean share of the memory slices that are taken.
func (t Tally) Allocated() float64 { return t.allocated / t.arrivals() }

// Stranded returns the mean number of free slices per GPU that the arriving demand could not use, even if
// it were repeated.
func (t Tally) Stranded() float64 { return t.stranded / t.arrivals() }

// Moved returns the number of instances that were moved, per demand that was served.
func (t Tally) Moved() float64 {
	accepted := 0
	for _, n := range t.Accepted {
		accepted += n
	}
	return float64(t.moves) / float64(max(1, accepted))
}

func (t Tally) arrivals() float64 {
	sum := 0
	for _, offered := range t.Offered {
		sum += offered
	}
	return float64(max(1, sum))
}

// tally returns an empty tally.
func (s *States) tally() Tally {
	t := Tally{Offered: make([]int, len(s.Profiles)), Accepted: make([]int, len(s.Profiles))}
	for _, p := range s.Profiles {
		t.Sizes = append(t.Sizes, p.Size)
	}
	return t
}

// Replay runs the stream through a policy on this number of empty GPUs. Refused demands are dropped.
func Replay(s *States, gpus int, p Policy, stream *arrivals.Stream) Tally {
	c, t := newCourse(s, gpus, len(stream.Demands)), s.tally()
	c.run(p, stream, &t)
	return t
}

// course is a running replay: a fleet and the demands on it.
type course struct {
	*Fleet
	// at is the placement of each demand, holder the demand at a placement of a GPU.
	at     []Choice
	holder [][]int
}

func newCourse(s *States, gpus, demands int) *course {
	c := &course{Fleet: New(s, gpus), at: make([]Choice, demands), holder: make([][]int, gpus)}
	for demand := range c.at {
		c.at[demand].GPU = None
	}
	for gpu := range c.holder {
		c.holder[gpu] = make([]int, len(s.Placements))
	}
	return c
}

// run replays the stream.
func (c *course) run(p Policy, stream *arrivals.Stream, t *Tally) {
	for _, step := range stream.Steps {
		if step.Leaves {
			c.leave(step.Demand)
			continue
		}
		d := stream.Demands[step.Demand]
		if stream.Counts(step.Demand) {
			t.look(c.Fleet, d.Kind)
		}
		choice, ok := p.Choose(c.Fleet, d)
		if !ok && c.makeRoom(p, d) {
			if stream.Counts(step.Demand) {
				t.moves++
			}
			choice, ok = p.Choose(c.Fleet, d)
		}
		if ok {
			c.arrive(step.Demand, choice)
		}
		t.count(stream, step.Demand, ok)
	}
}

// makeRoom makes the move that lets the demand be served, if the policy finds one.
func (c *course) makeRoom(p Policy, d arrivals.Demand) bool {
	mover, moves := p.(Mover)
	if !moves {
		return false
	}
	from, to, ok := mover.Move(c.Fleet, d)
	if ok {
		c.move(from, to)
	}
	return ok
}

func (c *course) arrive(demand int, at Choice) {
	c.Take(at)
	c.at[demand], c.holder[at.GPU][at.Placement] = at, demand
}

// leave ends a demand, if it was placed.
func (c *course) leave(demand int) {
	if at := c.at[demand]; at.GPU != None {
		c.Release(at)
	}
}

// move moves the instance that is held at one place to another.
func (c *course) move(from, to Choice) {
	demand := c.holder[from.GPU][from.Placement]
	c.Release(from)
	c.arrive(demand, to)
}

// ReplayRepack runs the stream through the bound.
func ReplayRepack(s *States, gpus int, stream *arrivals.Stream) Tally {
	r, t := NewRepack(gpus), s.tally()
	placed := make([]bool, len(stream.Demands))
	taken := 0
	for _, step := range stream.Steps {
		profile := stream.Demands[step.Demand].Kind
		if step.Leaves {
			if placed[step.Demand] {
				r.Release(profile)
				taken -= t.Sizes[profile]
			}
			continue
		}
		if stream.Counts(step.Demand) {
			t.allocated += float64(taken) / float64(s.Geometry.Slices()*gpus)
		}
		if placed[step.Demand] = r.Place(profile); placed[step.Demand] {
			taken += t.Sizes[profile]
		}
		t.count(stream, step.Demand, placed[step.Demand])
	}
	return t
}

// look adds the state of the fleet at an arrival of the profile.
func (t *Tally) look(f *Fleet, profile int) {
	gpus := len(f.State)
	t.allocated += 1 - float64(f.Free)/float64(f.Geometry.Slices()*gpus)
	t.stranded += float64(f.Free-f.Profiles[profile].Size*f.Open[profile]) / float64(gpus)
}

// count counts a demand that is past the warm-up.
func (t *Tally) count(stream *arrivals.Stream, demand int, placed bool) {
	if !stream.Counts(demand) {
		return
	}
	profile := stream.Demands[demand].Kind
	t.Offered[profile]++
	if placed {
		t.Accepted[profile]++
	}
}
