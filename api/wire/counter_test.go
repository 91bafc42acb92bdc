package wire_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
)

// TestAmountsNeverLimit allocates devices in random orders as long as memory slices and engines permit, and checks that the
// counters of amounts permit all of them, and that each device consumes its memory and its number of memory slices.
func TestAmountsNeverLimit(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, machine := range []string{"a100-40x2", "a100x8", "a30x4l40sx4", "b200x8", "b300x2", "gb200x4", "h100x8", "h200x8", "rtxpro6000x4", "t4x1"} {
		pool := encode(t, gputest.Node(t, machine), offering(gpu.Whole, gpu.MIG, gpu.MPS))
		sets := map[string]map[string]resourceapi.Counter{}
		for _, s := range pool.Slices {
			for _, set := range s.SharedCounters {
				sets[set.Name] = set.Counters
			}
		}
		list := devices(pool)
		for _, d := range list {
			checkAmounts(t, machine, d, sets[d.ConsumesCounters[0].CounterSet])
		}
		for range 20 {
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			free := map[string]map[string]resource.Quantity{}
			for name, set := range sets {
				free[name] = map[string]resource.Quantity{}
				for counter, c := range set {
					free[name][counter] = c.Value
				}
			}
			for _, d := range list {
				if limit := consume(free, d); limit == wire.MemoryCounter || limit == wire.SlicesCounter {
					t.Fatalf("%s: counter %s does not permit %s, although its memory slices and engines are free", machine, limit, d.Name)
				}
			}
		}
	}
}

// checkAmounts checks the counters of amounts of a device.
func checkAmounts(t *testing.T, machine string, d resourceapi.Device, set map[string]resourceapi.Counter) {
	t.Helper()
	consumed, slices := d.ConsumesCounters[0].Counters, int64(0)
	for name := range consumed {
		if strings.HasPrefix(name, "memory-slice-") {
			slices++
		}
	}
	value := consumed[wire.SlicesCounter].Value
	if got := value.Value(); got != slices {
		t.Errorf("%s: %s consumes %d of counter %s and %d memory slices", machine, d.Name, got, wire.SlicesCounter, slices)
	}
	memory, want := consumed[wire.MemoryCounter].Value, set[wire.MemoryCounter].Value
	if *d.Attributes[wire.Type].StringValue == gpu.MIG.String() {
		want = d.Capacity[wire.Memory].Value
	}
	if memory.Cmp(want) != 0 || memory.IsZero() {
		t.Errorf("%s: %s consumes %s of counter %s, want %s", machine, d.Name, memory.String(), wire.MemoryCounter, want.String())
	}
}

// consume subtracts what the device consumes, and returns the counter that does not permit it, a counter of amounts only if no
// other one limits.
func consume(free map[string]map[string]resource.Quantity, d resourceapi.Device) (limit string) {
	c := d.ConsumesCounters[0]
	for name, counter := range c.Counters {
		left := free[c.CounterSet][name]
		if left.Cmp(counter.Value) < 0 && (limit == "" || name != wire.MemoryCounter && name != wire.SlicesCounter) {
			limit = name
		}
	}
	if limit != "" {
		return limit
	}
	for name, counter := range c.Counters {
		left := free[c.CounterSet][name]
		left.Sub(counter.Value)
		free[c.CounterSet][name] = left
	}
	return ""
}

// TestCompactAttributes checks that the attributes of a MIG device fit into the smallest map of Go, on the hardware with most
// attributes.
func TestCompactAttributes(t *testing.T) {
	t.Parallel()
	for _, d := range devices(encode(t, gputest.Node(t, "h100x8"), offering(gpu.MIG))) {
		if n := len(d.Attributes); n > 8 {
			t.Fatalf("%s: %d attributes, at most 8", d.Name, n)
		}
	}
}
