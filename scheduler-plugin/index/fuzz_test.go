package index_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// pools is how many mutated pools TestHostilePools reads: a million in make test-long.
var pools = flag.Int("pools", 300, "number of mutated pools that TestHostilePools reads")

// maxPoolBytes is what processing one pool may allocate, whatever is in it.
const maxPoolBytes = 64 << 20

// FuzzPool checks that a pool with arbitrary content, derived from that of a real node, is processed without a panic and with bounded memory, and
// changes nothing of another node. Memory is counted in allocated bytes, which also bound the steps: the tables are filled.
func FuzzPool(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint8(seed*31))
	}
	f.Fuzz(func(t *testing.T, seed uint64, mutations uint8) { readHostile(t, seed, mutations) })
}

// TestHostilePools is FuzzPool for a fixed sequence of pools.
func TestHostilePools(t *testing.T) {
	worst := uint64(0)
	for seed := range uint64(*pools) {
		worst = max(worst, readHostile(t, seed, uint8(seed%64)))
	}
	t.Logf("%d pools, at most %d KiB each", *pools, worst>>10)
}

// TestLargestTables reads the pool with the largest tables within the bounds: GPUs of 16 memory slices whose expected profiles start everywhere.
func TestLargestTables(t *testing.T) {
	n := gpu.Node{Name: "n1"}
	for i := range wire.MaxGPUs {
		var profiles []gpu.Profile
		for size := 1; size <= 4; size++ {
			p := gpu.Profile{ID: size, Name: fmt.Sprintf("%dg.10gb", size), Size: size, ComputeSlices: size, MemoryBytes: uint64(i+1) << 30}
			for start := range gpu.MaxSlices - size + 1 {
				p.Starts = append(p.Starts, start)
			}
			profiles = append(profiles, p)
		}
		g, err := gpu.NewGeometry(profiles)
		if err != nil {
			t.Fatal(err)
		}
		n.GPUs = append(n.GPUs, gpu.GPU{Index: i, UUID: fmt.Sprint("GPU-", i), PCI: fmt.Sprintf("0000:%02x:00.0", i), Geometry: g, Mode: gpu.ModeEnabled, Pending: gpu.ModeEnabled})
		if pool, err := wire.Encode(n, everyShape); err != nil || len(pool.Slices) == 0 {
			n.GPUs = n.GPUs[:i]
			break
		}
	}
	if len(n.GPUs) == 0 || len(n.GPUs) == wire.MaxGPUs {
		t.Fatalf("%d GPUs are within the bounds, want some and not all", len(n.GPUs))
	}
	bytes := process(t, publish(t, n, 1, 1), "n1")
	t.Logf("%d GPUs: %d MiB", len(n.GPUs), bytes>>20)
	if bytes > maxPoolBytes {
		t.Errorf("%d GPUs: %d MiB", len(n.GPUs), bytes>>20)
	}
}

// readHostile reads the mutated pool of a seed and returns the allocated bytes.
func readHostile(t *testing.T, seed uint64, mutations uint8) uint64 {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, uint64(mutations)))
	all, err := machines()
	if err != nil {
		t.Fatal(err)
	}
	m := all[random.IntN(len(all))]
	list := originalPool(t, m.Name, "n1")
	h := hostile{random: random, wild: seed%2 == 0}
	for range mutations {
		list = h.mutate(list)
	}
	bytes := process(t, list, "n1")
	if bytes > maxPoolBytes {
		t.Errorf("seed %d, %d mutations of %s: %d MiB", seed, mutations, m.Name, bytes>>20)
	}
	return bytes
}

// machines and originals keep what takes longer to create than to process: the known machines, and the ResourceSlices by machine and node.
var (
	machines  = sync.OnceValues(catalog.Machines)
	originals sync.Map
)

// originalPool returns the ResourceSlices of the machine as a node with the name. They belong to the caller.
func originalPool(t *testing.T, machineName, node string) []*resourceapi.ResourceSlice {
	t.Helper()
	known, ok := originals.Load(machineName + node)
	if !ok {
		known, _ = originals.LoadOrStore(machineName+node, publish(t, machine(t, machineName, node), 1, 1))
	}
	published, _ := known.([]*resourceapi.ResourceSlice)
	var list []*resourceapi.ResourceSlice
	for _, s := range published {
		list = append(list, s.DeepCopy())
	}
	return list
}

// process adds the ResourceSlices of the node to an index with another node, fills the tables, and returns the allocated bytes.
func process(t *testing.T, list []*resourceapi.ResourceSlice, node string) uint64 {
	t.Helper()
	x := index.New(index.Config{Drivers: []string{driver}, Weights: fit.Weights{Profiles: map[string]float64{"1g.10gb": 1, "2g.10gb": 1, "3g.10gb": 1, "4g.10gb": 1}}})
	set(x, originalPool(t, "h100x2", "neighbor"))
	neighbor := known(t, x, "neighbor")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	set(x, list)
	if n, ok := x.Node(node); ok {
		for i := range n.Fit.GPUs {
			g := &n.Fit.GPUs[i]
			state := g.Kind.State(g.Occupancy)
			g.Kind.Value(state)
			for _, p := range g.Kind.Geometry.Profiles() {
				g.Kind.Options(state, p.ID)
			}
		}
		n.Fit.Wiring.Tables()
	}
	runtime.ReadMemStats(&after)
	if n, ok := x.Node("neighbor"); !ok || n != neighbor {
		t.Errorf("the neighbor is published: %v, and changed: %v", ok, n != neighbor)
	}
	return after.TotalAlloc - before.TotalAlloc
}

// hostile mutates pools. Without wild, the number of GPUs, devices and profiles stays what it is, and so within the bounds.
type hostile struct {
	random *rand.Rand
	wild   bool
}

// mutate returns the pool with one change.
func (h hostile) mutate(list []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	s := list[h.random.IntN(len(list))]
	switch choice := h.random.IntN(10); {
	case choice == 0 && h.wild:
		list = append(list, h.copies(s)...)
		for _, s := range list {
			s.Spec.Pool.ResourceSliceCount = int64(len(list))
		}
	case choice == 1 && len(list) > 1 && h.random.IntN(4) == 0:
		return slices.DeleteFunc(list, func(other *resourceapi.ResourceSlice) bool { return other == s })
	case choice == 2:
		s.Spec.Pool.Generation = h.number()
	case choice == 3 && h.random.IntN(4) == 0:
		s.Spec.Pool.Name = []string{"", "neighbor-" + driver, "n1"}[h.random.IntN(3)]
	case choice == 4 && len(s.Spec.SharedCounters) > 0:
		h.count(s.Spec.SharedCounters[h.random.IntN(len(s.Spec.SharedCounters))].Counters)
	case len(s.Spec.Devices) > 0:
		h.device(&s.Spec.Devices[h.random.IntN(len(s.Spec.Devices))])
	}
	return list
}

// copies returns ResourceSlices with devices of new names, and in half of the cases of new GPUs.
func (h hostile) copies(s *resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	other := h.random.IntN(2) == 0
	for range 1 + h.random.IntN(8) {
		c := s.DeepCopy()
		suffix := fmt.Sprintf("-%x", h.random.Uint32())
		c.Name, c.UID = c.Name+suffix, c.UID+"x"
		for i := range c.Spec.Devices {
			d := &c.Spec.Devices[i]
			d.Name += suffix
			if other {
				for j := range d.ConsumesCounters {
					d.ConsumesCounters[j].CounterSet += suffix
				}
			}
		}
		for i := range c.Spec.SharedCounters {
			c.Spec.SharedCounters[i].Name += suffix
		}
		all = append(all, c)
	}
	return all
}

// device changes an attribute, capacity, counter or taint of a device.
func (h hostile) device(d *resourceapi.Device) {
	switch h.random.IntN(5) {
	case 0:
		d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: fmt.Sprint("k", h.random.IntN(9)), Effect: resourceapi.DeviceTaintEffectNoSchedule, TimeAdded: &metav1.Time{}})
	case 1:
		if len(d.ConsumesCounters) > 0 {
			h.count(d.ConsumesCounters[0].Counters)
		}
	case 2:
		d.Name = fmt.Sprint("d", h.random.IntN(50))
	default:
		names := []resourceapi.QualifiedName{
			wire.Type, wire.UUID, wire.ParentUUID, wire.Profile, wire.MIGProfileID, wire.MIGStart, wire.Index, wire.Links, wire.NUMANode, wire.PCIeRoot, wire.PCIBusID, wire.Clique,
		}
		name := names[h.random.IntN(len(names))]
		if d.Attributes == nil || h.random.IntN(8) == 0 {
			d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		}
		switch was := d.Attributes[name]; {
		case was.IntValue != nil && (h.wild || name != wire.MIGProfileID):
			d.Attributes[name] = resourceapi.DeviceAttribute{IntValue: new(h.number())}
		case was.StringValue != nil:
			texts := []string{"mig", "gpu", "mps", "monitor", "vfio", "", "1g.10gb", "2g.10gb", "999999g", "s9A-?x", *was.StringValue + "x"}
			d.Attributes[name] = resourceapi.DeviceAttribute{StringValue: new(texts[h.random.IntN(len(texts))])}
		default:
			delete(d.Attributes, name)
		}
	}
}

// count changes one counter, or adds one.
func (h hostile) count(counters map[string]resourceapi.Counter) {
	names := []string{"ofa-engines", "decoders", "encoders", "jpeg-engines", "copy-engines"}
	for i := range gpu.MaxSlices {
		names = append(names, fmt.Sprint("memory-slice-", i))
	}
	if counters != nil {
		counters[names[h.random.IntN(len(names))]] = resourceapi.Counter{Value: *resource.NewQuantity(h.number(), resource.DecimalSI)}
	}
}

// number returns an interesting number: small in most cases, at or beyond a bound otherwise.
func (h hostile) number() int64 {
	if h.random.IntN(3) > 0 {
		return int64(h.random.IntN(9))
	}
	all := []int64{-1, 16, 17, 63, gpu.MaxEngines, 0}
	if h.wild {
		all = append(all, gpu.MaxEngines+1, 1<<31, 1<<62, -1<<63)
	}
	return all[h.random.IntN(len(all))]
}
