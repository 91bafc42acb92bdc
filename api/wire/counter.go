package wire

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// counterSet returns what the GPU has: a counter of 1 for each memory slice, and a counter for each binding engine kind.
//
// The counter of a withheld memory slice is 0. All devices remain published, and the allocator rejects those that use the
// memory slice. A change of the withheld ones thus changes one counter set only.
func (s source) counterSet() resourceapi.CounterSet {
	total := s.gpu.Geometry.Total()
	counters := s.counters(total)
	for slice := range gpu.MaxSlices {
		if total.Slices.Has(slice) && s.gpu.Withheld.Has(slice) {
			counters[sliceCounter(slice)] = counter(0)
		}
	}
	return resourceapi.CounterSet{Name: s.gpu.Name(), Counters: counters}
}

// consumption returns the cost as a reference to the GPU's counters. It is nil for a monitor, since the API rejects a
// consumption without counters.
func (s source) consumption(cost gpu.Cost) []resourceapi.DeviceCounterConsumption {
	if cost == (gpu.Cost{}) {
		return nil
	}
	return []resourceapi.DeviceCounterConsumption{{CounterSet: s.gpu.Name(), Counters: s.counters(cost)}}
}

// counters returns the cost as counters. Engine kinds that the cost does not have are left out.
func (s source) counters(cost gpu.Cost) map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for slice := range gpu.MaxSlices {
		if cost.Slices.Has(slice) {
			counters[sliceCounter(slice)] = counter(1)
		}
	}
	for _, kind := range s.gpu.Geometry.BindingEngines() {
		if n := cost.Engines.Count(kind); n > 0 {
			counters[kind.String()] = counter(n)
		}
	}
	return counters
}

func counter(n int) resourceapi.Counter { return resourceapi.Counter{Value: *quantity(int64(n))} }
