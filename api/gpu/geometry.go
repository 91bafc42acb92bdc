package gpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Geometry is what a GPU model can hold: its memory slices, and its MIG profiles with their legal placements. A nil Geometry is
// a GPU without MIG; all exported methods except UnmarshalJSON accept it.
//
// A Geometry is immutable once built, shared by pointer, and safe for concurrent use. Occupancies compare equal (==) only if
// they share the pointer.
//
// Source: nvmlDeviceGetGpuInstanceProfileInfo, nvmlDeviceGetGpuInstancePossiblePlacements.
type Geometry struct {
	// slices is the number of memory slices, capacity the GPU's engines of all kinds, and binding the result of bindingEngines.
	// profiles are sorted by size, compute slices and id; other fields refer to a profile by its position there.
	slices   int
	capacity Engines
	binding  []Engine
	profiles []Profile
	// engines has, for each profile, the engines of the binding kinds.
	engines []Engines
	// placements are the legal placements, profile by profile, in ascending order of start.
	placements []Placement
	// preferred are the same placements, within a profile in ascending order of loss.
	preferred []Placement
}

// The bounds of a Geometry: the number of its profiles, and the number of engines of one kind. They bound the time and memory that a
// geometry costs, because it can be derived from what a compromised node publishes. Known GPUs have at most 11 profiles and 16
// engines of a kind.
const (
	MaxProfiles = 32
	MaxEngines  = 255
)

// Profile is a kind of GPU instance, as NVML reports it.
type Profile struct {
	// ID is the profile id that nvidia-smi prints and that nvmlDeviceCreateGpuInstance takes. It is the stable identity of a
	// profile; names depend on the driver version.
	ID int `json:"id"`
	// Name is the driver's name, such as 1g.10gb or 1g.10gb+me.
	Name string `json:"name"`
	// ComputeSlices is the number of compute slices, which precedes the g in the name.
	ComputeSlices int `json:"computeSlices"`
	// Size is the number of memory slices that an instance takes.
	Size int `json:"size"`
	// Starts are the legal first memory slices, ascending.
	Starts []int `json:"starts"`
	// MaxInstances is the number of instances of this profile that an empty GPU holds.
	MaxInstances int `json:"maxInstances"`
	// Multiprocessors is the number of streaming multiprocessors (SMs) of an instance.
	Multiprocessors int `json:"multiprocessors"`
	// MemoryBytes is the memory of an instance in bytes.
	MemoryBytes uint64 `json:"memoryBytes"`
	// Engines are the fixed-function engines of an instance.
	Engines Engines `json:"engines"`
}

// NewGeometry validates the profiles and returns their geometry. The argument is not modified, and not retained.
//
// The number of memory slices is the highest one that any legal placement reaches, plus one. The capacity of an engine kind is
// the largest number that one profile has. Duplicate starts are merged.
//
// An error names the invalid profile, or wraps ErrTooLarge and names the bound that is exceeded. Drivers newer than this code are expected, so that the input is not trusted.
func NewGeometry(profiles []Profile) (*Geometry, error) {
	g, err := newGeometry(profiles)
	if err != nil {
		return nil, err
	}
	binding, err := bindingEngines(g)
	if err != nil {
		return nil, err
	}
	g.bind(binding)
	return g, nil
}

// newGeometry is NewGeometry without the binding kinds.
func newGeometry(profiles []Profile) (*Geometry, error) {
	if len(profiles) > MaxProfiles {
		return nil, fmt.Errorf("%d MIG profiles, at most %d: %w", len(profiles), MaxProfiles, ErrTooLarge)
	}
	g := &Geometry{profiles: slices.Clone(profiles)}
	seen := map[int]bool{}
	for i := range g.profiles {
		p := &g.profiles[i]
		p.Starts = slices.Compact(slices.Sorted(slices.Values(p.Starts)))
		if err := p.validate(); err != nil {
			return nil, err
		}
		if seen[p.ID] {
			return nil, fmt.Errorf("profile id %d of %q: listed twice", p.ID, p.Name)
		}
		seen[p.ID] = true
		g.slices = max(g.slices, p.Starts[len(p.Starts)-1]+p.Size)
		g.capacity = g.capacity.atLeast(p.Engines)
	}
	slices.SortFunc(g.profiles, func(a, b Profile) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.ComputeSlices, b.ComputeSlices), cmp.Compare(a.ID, b.ID))
	})
	for _, p := range g.profiles {
		for _, start := range p.Starts {
			g.placements = append(g.placements, Placement{Profile: p.ID, Start: start, Size: p.Size})
		}
	}
	g.preferred = g.byLoss()
	return g, nil
}

// validate checks the name and that all placements are within MaxSlices. Starts must be sorted.
func (p *Profile) validate() error {
	switch {
	case p.Name == "":
		return fmt.Errorf("profile id %d: no name", p.ID)
	case p.Size < 1 || len(p.Starts) == 0:
		return fmt.Errorf("profile %q (id %d): no legal placement", p.Name, p.ID)
	case p.Engines.exceed(MaxEngines):
		return fmt.Errorf("profile %q (id %d): engines %+v, at most %d of a kind: %w", p.Name, p.ID, p.Engines, MaxEngines, ErrTooLarge)
	case p.Starts[0] < 0 || p.Size > MaxSlices || p.Starts[len(p.Starts)-1] > MaxSlices-p.Size:
		return fmt.Errorf("profile %q (id %d): placement outside memory slices 0..%d", p.Name, p.ID, MaxSlices-1)
	}
	return nil
}

// bind sets the binding kinds and the engines of each profile that follow from them.
func (g *Geometry) bind(kinds []Engine) {
	g.binding, g.engines = kinds, make([]Engines, len(g.profiles))
	for i, p := range g.profiles {
		g.engines[i] = p.Engines.only(kinds)
	}
}

// Slices returns the number of memory slices; 0 for a GPU without MIG.
func (g *Geometry) Slices() int {
	if g == nil {
		return 0
	}
	return g.slices
}

// Capacity returns the engines of the GPU: for each kind, the most that one profile has.
func (g *Geometry) Capacity() Engines {
	if g == nil {
		return Engines{}
	}
	return g.capacity
}

// BindingEngines returns the engine kinds that can reject a placement whose memory slices are free (bindingEngines). Only these
// kinds need counters.
func (g *Geometry) BindingEngines() []Engine {
	return slices.Clone(g.kinds())
}

// Profiles returns the profiles by size, then compute slices, then id. The caller must not modify their Starts.
func (g *Geometry) Profiles() []Profile {
	if g == nil {
		return nil
	}
	return slices.Clone(g.profiles)
}

// Profile returns the profile with the id. The caller must not modify its Starts.
func (g *Geometry) Profile(id int) (Profile, bool) {
	i := g.index(id)
	if i < 0 {
		return Profile{}, false
	}
	return g.profiles[i], true
}

// index returns the position of the profile in g.profiles, or -1.
func (g *Geometry) index(id int) int {
	if g == nil {
		return -1
	}
	for i := range g.profiles {
		if g.profiles[i].ID == id {
			return i
		}
	}
	return -1
}

// Placements returns all legal placements of the profile, in ascending order of start; none for an unknown id.
func (g *Geometry) Placements(id int) []Placement {
	if g == nil {
		return nil
	}
	return of(id, g.placements)
}

// of returns the placements that have the profile id, in their order.
func of(id int, placements []Placement) []Placement {
	var own []Placement
	for _, p := range placements {
		if p.Profile == id {
			own = append(own, p)
		}
	}
	return own
}

// Legal returns the profile of a legal placement. Otherwise the error wraps ErrUnsupported and lists the legal starts.
func (g *Geometry) Legal(p Placement) (Profile, error) {
	i, err := g.legal(p)
	if err != nil {
		return Profile{}, err
	}
	return g.profiles[i], nil
}

// legal is Legal, but returns the position of the profile in g.profiles.
func (g *Geometry) legal(p Placement) (int, error) {
	i := g.index(p.Profile)
	if i < 0 {
		return i, fmt.Errorf("%v: no such MIG profile: %w", p, ErrUnsupported)
	}
	if profile := &g.profiles[i]; p.Size != profile.Size || !slices.Contains(profile.Starts, p.Start) {
		return i, fmt.Errorf("%v: %s takes %d slices from %v: %w", p, profile.Name, profile.Size, profile.Starts, ErrUnsupported)
	}
	return i, nil
}

// Open returns the placements of the profile that fit next to what the occupancy holds, in ascending order of start.
func (g *Geometry) Open(o Occupancy, id int) []Placement {
	var open []Placement
	for _, p := range g.Placements(id) {
		if _, err := o.Take(Use{Shape: MIG, Placement: p}); err == nil {
			open = append(open, p)
		}
	}
	return open
}

// MarshalJSON encodes the geometry as the list of its profiles.
func (g *Geometry) MarshalJSON() ([]byte, error) { return json.Marshal(g.Profiles()) }

// UnmarshalJSON decodes the output of MarshalJSON and validates it as NewGeometry does. On an error g is unchanged.
func (g *Geometry) UnmarshalJSON(data []byte) error {
	var profiles []Profile
	if err := json.Unmarshal(data, &profiles); err != nil {
		return err
	}
	read, err := NewGeometry(profiles)
	if err != nil {
		return err
	}
	*g = *read
	return nil
}
