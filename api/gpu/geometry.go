package gpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Geometry is what a GPU model can hold: its memory slices and its MIG profiles with their legal
// placements. It is read from NVML (nvmlDeviceGetGpuInstanceProfileInfo and
// nvmlDeviceGetGpuInstancePossiblePlacements), shared by pointer and never changed after New.
// A nil Geometry is a GPU without MIG.
type Geometry struct {
	slices   int
	capacity Engines
	binding  []Engine
	profiles []Profile
	// engines are, by profile, those of the kinds that bind.
	engines []Engines
	// placements are the legal ones, profile by profile, by ascending start.
	placements []Placement
	// preferred are the same, within a profile by ascending loss.
	preferred []Placement
}

// Profile is one kind of GPU instance that a geometry allows.
type Profile struct {
	// ID is the profile id that nvidia-smi prints and that nvmlDeviceCreateGpuInstance takes. It is
	// the stable identity of a profile: names change with the driver.
	ID int `json:"id"`
	// Name is the driver's name, such as 1g.10gb or 1g.10gb+me.
	Name string `json:"name"`
	// ComputeSlices is the number before the g in the name.
	ComputeSlices int `json:"computeSlices"`
	// Size is the number of memory slices that an instance takes.
	Size int `json:"size"`
	// Starts are the legal first memory slices, ascending.
	Starts []int `json:"starts"`
	// MaxInstances is how many instances of this profile an otherwise empty GPU holds.
	MaxInstances int `json:"maxInstances"`
	// Multiprocessors is the number of SMs of an instance.
	Multiprocessors int `json:"multiprocessors"`
	// MemoryBytes is the memory of an instance.
	MemoryBytes uint64 `json:"memoryBytes"`
	// Engines are the engines of an instance.
	Engines Engines `json:"engines"`
}

// NewGeometry checks the profiles and returns their geometry, with the profiles in order of size,
// then compute slices, then id. The number of slices is what the legal placements reach; a start
// that is listed twice counts once. An error names the profile that is wrong: the model is built
// from what a driver says, and a driver may be newer than this code.
func NewGeometry(profiles []Profile) (*Geometry, error) {
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
	g.bind(bindingEngines(g))
	g.preferred = g.byLoss()
	return g, nil
}

func (p *Profile) validate() error {
	switch {
	case p.Name == "":
		return fmt.Errorf("profile id %d: no name", p.ID)
	case p.Size < 1 || len(p.Starts) == 0:
		return fmt.Errorf("profile %q (id %d): no legal placement", p.Name, p.ID)
	case p.Starts[0] < 0 || p.Size > MaxSlices || p.Starts[len(p.Starts)-1] > MaxSlices-p.Size:
		return fmt.Errorf("profile %q (id %d): placement outside memory slices 0..%d", p.Name, p.ID, MaxSlices-1)
	}
	return nil
}

// bind says which engine kinds can refuse a placement.
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

// Capacity returns the engines of the GPU: per kind, the most that any profile has.
func (g *Geometry) Capacity() Engines {
	if g == nil {
		return Engines{}
	}
	return g.capacity
}

// BindingEngines returns the engine kinds that can refuse a placement whose memory slices are
// free; no other kind ever decides.
func (g *Geometry) BindingEngines() []Engine {
	return slices.Clone(g.kinds())
}

// Profiles returns the profiles by size, then compute slices, then id. The caller must not change
// their Starts.
func (g *Geometry) Profiles() []Profile {
	if g == nil {
		return nil
	}
	return slices.Clone(g.profiles)
}

// Profile returns the profile with the id.
func (g *Geometry) Profile(id int) (Profile, bool) {
	i := g.index(id)
	if i < 0 {
		return Profile{}, false
	}
	return g.profiles[i], true
}

// index returns the position of the profile, or -1.
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

// Placements returns every legal placement of the profile, by ascending start.
func (g *Geometry) Placements(id int) []Placement {
	if g == nil {
		return nil
	}
	return of(id, g.placements)
}

// of returns the placements of the profile.
func of(id int, placements []Placement) []Placement {
	var own []Placement
	for _, p := range placements {
		if p.Profile == id {
			own = append(own, p)
		}
	}
	return own
}

// Legal returns the profile of the placement when the geometry allows it, and ErrUnsupported with
// the legal choices otherwise.
func (g *Geometry) Legal(p Placement) (Profile, error) {
	i, err := g.legal(p)
	if err != nil {
		return Profile{}, err
	}
	return g.profiles[i], nil
}

// legal returns the position of the profile of a legal placement.
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

// Open returns the placements of the profile that the occupancy leaves free, by ascending start.
func (g *Geometry) Open(o Occupancy, id int) []Placement {
	var open []Placement
	for _, p := range g.Placements(id) {
		if _, err := o.Take(Use{Shape: MIG, Placement: p}); err == nil {
			open = append(open, p)
		}
	}
	return open
}

// MarshalJSON writes the geometry as the list of its profiles.
func (g *Geometry) MarshalJSON() ([]byte, error) { return json.Marshal(g.Profiles()) }

// UnmarshalJSON reads what MarshalJSON wrote and checks it as NewGeometry does.
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
