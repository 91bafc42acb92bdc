package wire

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The counters of amounts, for quotas: Kueue charges one named counter per device. They never limit an allocation.
const (
	// MemoryCounter is in bytes, as in NVIDIA's driver. A device that uses the whole GPU consumes all of it.
	MemoryCounter = "memory"
	// SlicesCounter is the number of memory slices.
	SlicesCounter = "slices"
)

// counterSet returns what the GPU has: a counter of 1 for each memory slice, a counter for each binding engine kind, and the
// counters of amounts.
//
// The counter of a withheld memory slice is 0. All devices remain published, and the allocator rejects those that use the
// memory slice. A change of the withheld ones thus changes one counter set only.
func (s source) counterSet() resourceapi.CounterSet {
	total := s.gpu.Geometry.Total()
	counters := s.counters(total, s.accountedMemory())
	for slice := range gpu.MaxSlices {
		if total.Slices.Has(slice) && s.gpu.Withheld.Has(slice) {
			counters[sliceCounter(slice)] = counter(0)
		}
	}
	return resourceapi.CounterSet{Name: s.gpu.Name(), Counters: counters}
}

// consumption returns what a use with the cost consumes of the GPU's counters. It is nil for a monitor, since the API rejects a
// consumption without counters.
func (s source) consumption(u gpu.Use, cost gpu.Cost) []resourceapi.DeviceCounterConsumption {
	if cost == (gpu.Cost{}) {
		return nil
	}
	memory := s.accountedMemory()
	if profile, ok := s.gpu.Geometry.Profile(u.Placement.Profile); ok && u.Shape == gpu.MIG {
		memory = profile.MemoryBytes
	}
	return []resourceapi.DeviceCounterConsumption{{CounterSet: s.gpu.Name(), Counters: s.counters(cost, memory)}}
}

// accountedMemory returns the value of MemoryCounter in bytes: the memory of the GPU, but at least as much for each memory slice
// as any profile has. Devices on different memory slices can then never consume more.
func (s source) accountedMemory() uint64 {
	memory, total := s.gpu.MemoryBytes, uint64(s.gpu.Geometry.Total().Slices.Count())
	for _, p := range s.gpu.Geometry.Profiles() {
		size := uint64(max(1, p.Size))
		memory = max(memory, total*((p.MemoryBytes+size-1)/size))
	}
	return memory
}

// counters returns the cost and the memory in bytes as counters. Engine kinds that the cost does not have are left out.
func (s source) counters(cost gpu.Cost, memory uint64) map[string]resourceapi.Counter {
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
	counters[SlicesCounter] = counter(cost.Slices.Count())
	if memory > 0 { // unknown without a driver
		counters[MemoryCounter] = resourceapi.Counter{Value: *resource.NewQuantity(int64(memory), resource.BinarySI)}
	}
	return counters
}

func counter(n int) resourceapi.Counter { return resourceapi.Counter{Value: *quantity(int64(n))} }
