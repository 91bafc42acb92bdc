package wire

import (
	"fmt"
	"reflect"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// offers caches the geometry of the last GPU that was read. Most GPUs of a pool have equal offers, and building a geometry is
// expensive.
type offers struct {
	profiles profiles
	total    gpu.Cost
	geometry *gpu.Geometry
}

// geometryOf returns the geometry of the offered profiles (gpu.OfferedGeometry). GPUs with equal offers share it.
func (o *offers) geometryOf(p profiles, total gpu.Cost) (*gpu.Geometry, error) {
	if o.geometry != nil && o.total == total && reflect.DeepEqual(o.profiles, p) {
		return o.geometry, nil
	}
	geometry, err := gpu.OfferedGeometry(p, total)
	if err == nil {
		o.profiles, o.total, o.geometry = p, total, geometry
	}
	return geometry, err
}

// profiles collects MIG profiles from placements.
type profiles []gpu.Profile

// add adds a profile with one start, or its start to the profile with the same id. An error names the difference if the two
// contradict each other.
func (all *profiles) add(p gpu.Profile) error {
	for i, known := range *all {
		if known.ID != p.ID {
			continue
		}
		if known.Size != p.Size || known.Name != p.Name || known.Engines != p.Engines {
			return fmt.Errorf("profile %d is %q of %d memory slices here and %q of %d elsewhere", p.ID, p.Name, p.Size, known.Name, known.Size)
		}
		(*all)[i].Starts = append(known.Starts, p.Starts...)
		return nil
	}
	*all = append(*all, p)
	return nil
}
