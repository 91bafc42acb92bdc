package wire_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/wire"
)

// counters returns counters with the values.
func counters(values map[string]int64) map[string]resourceapi.Counter {
	all := map[string]resourceapi.Counter{}
	for name, value := range values {
		all[name] = resourceapi.Counter{Value: *resource.NewQuantity(value, resource.DecimalSI)}
	}
	return all
}

// engineKinds are the names of the counters of engines.
var engineKinds = []string{"ofa-engines", "decoders", "encoders", "jpeg-engines", "copy-engines"}

// migPool returns the pool of one GPU of 16 memory slices with a MIG device at each of them for each of the profiles, all with different engines: the
// number of sums of engines grows exponentially with the profiles.
func migPool(node string, profiles int) []resourceapi.ResourceSlice {
	const slices = 16
	total := map[string]int64{}
	for slice := range slices {
		total[fmt.Sprintf("memory-slice-%d", slice)] = 1
	}
	for _, kind := range engineKinds {
		total[kind] = 1 << 40
	}
	set := resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{SharedCounters: []resourceapi.CounterSet{{Name: "gpu-0", Counters: counters(total)}}}}
	var devices []resourceapi.Device
	for profile := range profiles {
		for slice := range slices {
			cost := map[string]int64{fmt.Sprintf("memory-slice-%d", slice): 1}
			for i, kind := range engineKinds {
				cost[kind] = int64(math.Pow(float64(5+i), float64(profile)))
			}
			devices = append(devices, resourceapi.Device{
				Name: fmt.Sprintf("gpu-0-mig-%d-%d", profile, slice),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					wire.Type: {StringValue: new("mig")}, wire.ParentUUID: {StringValue: new("GPU-0")}, wire.Profile: {StringValue: new(fmt.Sprintf("1g.%dgb", profile))},
					wire.MIGProfileID: {IntValue: new(int64(profile))}, wire.MIGStart: {IntValue: new(int64(slice))},
				},
				ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "gpu-0", Counters: counters(cost)}},
			})
		}
	}
	return asPool(node, []resourceapi.ResourceSlice{set}, devices)
}

// monitorPool returns a pool of monitors, each of another GPU.
func monitorPool(node string, gpus int) []resourceapi.ResourceSlice {
	var devices []resourceapi.Device
	for i := range gpus {
		devices = append(devices, resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d-monitor", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				wire.Type: {StringValue: new("monitor")}, wire.UUID: {StringValue: new(fmt.Sprintf("GPU-%d", i))}, wire.Index: {IntValue: new(int64(i))},
			},
		})
	}
	return asPool(node, nil, devices)
}

// asPool adds the devices in as few ResourceSlices as the API permits, and sets the fields of the pool.
func asPool(node string, list []resourceapi.ResourceSlice, devices []resourceapi.Device) []resourceapi.ResourceSlice {
	const most = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
	for first := 0; first < len(devices); first += most {
		list = append(list, resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: devices[first:min(first+most, len(devices))]}})
	}
	for i := range list {
		list[i].Name = fmt.Sprintf("%s-%04d", node, i)
		list[i].Spec.Driver, list[i].Spec.NodeName = driver, &node
		list[i].Spec.Pool = resourceapi.ResourcePool{Name: wire.PoolName(node, driver), Generation: 1, ResourceSliceCount: int64(len(list))}
	}
	return list
}

// allocated returns the bytes that the function allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestReadRefusesWhatNoAgentPublishes checks that pools beyond a bound, or in the name of another node, are refused as a whole after a number of
// steps that is linear in their size, counted in allocations, and that the reading of another node is the same as without them. The MIG pools cost 26 s
// and 1,045 MiB before there were bounds, the monitors a wiring of 26 million links.
func TestReadRefusesWhatNoAgentPublishes(t *testing.T) {
	neighbor := encoded(t, "h100x8", "neighbor")
	alone := wire.Read(neighbor)
	if len(alone) != 1 || len(alone[0].GPUs) != 8 || alone[0].Refused != nil {
		t.Fatalf("the neighbor alone: %v", alone)
	}
	manyDevices := migPool("n", 8)
	manyDevices = asPool("n", manyDevices[:1], append(devicesOf(manyDevices), devicesOf(migPool("n", 1))...))
	manyStates := migPool("n", 3)
	for _, kind := range engineKinds {
		manyStates[0].Spec.SharedCounters[0].Counters[kind] = counters(map[string]int64{kind: 255})[kind]
	}
	renamed := encoded(t, "h100x8", "n")
	for i := range renamed {
		renamed[i].Spec.Pool.Name = wire.PoolName("neighbor", driver)
		renamed[i].Spec.Pool.Generation = 1 << 62
	}
	everywhere := encoded(t, "h100x8", "n")
	for i := range everywhere {
		everywhere[i].Spec.NodeName, everywhere[i].Spec.AllNodes = nil, new(true)
	}
	tests := map[string]struct {
		pool []resourceapi.ResourceSlice
		want string
	}{
		"112 MIG devices":   {migPool("n", 7), "engines"},
		"144 MIG devices":   {migPool("n", 9), "144 devices, at most 128"},
		"160 MIG devices":   {migPool("n", 10), "160 devices, at most 128"},
		"5,120 monitors":    {monitorPool("n", 5120), "more than 64 GPUs"},
		"devices":           {manyDevices, "144 devices, at most 128"},
		"states":            {manyStates, "states of memory slices and engines"},
		"in another's name": {renamed, `pool "neighbor-gpu.tessera.dev" of node n, whose pool is "n-gpu.tessera.dev"`},
		"of all nodes":      {everywhere, "of no node"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			devices := len(devicesOf(test.pool))
			var readings []wire.Reading
			all := append(slices.Clone(test.pool), neighbor...)
			own := testing.AllocsPerRun(1, func() { wire.Read(neighbor) })
			steps := testing.AllocsPerRun(1, func() { readings = wire.Read(all) })
			if most := own + 1000 + 10*float64(devices); steps > most {
				t.Errorf("%v allocations for %d devices, want at most %v", steps, devices, most)
			}
			if bytes := allocated(func() { wire.Read(all) }); bytes > 8<<20 {
				t.Errorf("%d MiB for %d devices", bytes>>20, devices)
			}
			i := slices.IndexFunc(readings, func(r wire.Reading) bool { return r.Node != "neighbor" })
			if i < 0 || len(readings) != 2 {
				t.Fatalf("%d readings", len(readings))
			}
			r := readings[i]
			if r.Refused == nil || !strings.Contains(r.Refused.Error(), test.want) || len(r.GPUs)+len(r.Invalid) > 0 {
				t.Errorf("refused: %v, %d GPUs and %d invalid devices; want %q", r.Refused, len(r.GPUs), len(r.Invalid), test.want)
			}
			if diff := cmp.Diff(alone[0], readings[1-i], cmp.Comparer(func(a, b *gpu.Geometry) bool { return reflect.DeepEqual(a, b) })); diff != "" {
				t.Errorf("the neighbor (-alone +with the other):\n%s", diff)
			}
		})
	}
}

// encoded returns the ResourceSlices of the machine as a node with the name.
func encoded(t *testing.T, machine, node string) []resourceapi.ResourceSlice {
	t.Helper()
	m, err := catalog.FindMachine(machine)
	if err != nil {
		t.Fatal(err)
	}
	n, err := m.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := wire.Encode(n, wire.Options{Driver: driver, Offer: gpu.Offer{Shapes: everyShape, Shares: 4}})
	if err != nil {
		t.Fatal(err)
	}
	var list []resourceapi.ResourceSlice
	for _, s := range pool.Slices {
		list = append(list, resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{SharedCounters: s.SharedCounters, Devices: s.Devices}})
	}
	return asPool(node, list, nil)
}

// devicesOf returns the devices of all ResourceSlices.
func devicesOf(list []resourceapi.ResourceSlice) []resourceapi.Device {
	var devices []resourceapi.Device
	for _, s := range list {
		devices = append(devices, s.Spec.Devices...)
	}
	return devices
}

// TestEncodeKeepsTheBounds checks that a node beyond a bound is not published, with the reason: readers would refuse its pool.
func TestEncodeKeepsTheBounds(t *testing.T) {
	t.Parallel()
	n := gpu.Node{Name: "n"}
	for i := range wire.MaxGPUs + 1 {
		n.GPUs = append(n.GPUs, gpu.GPU{Index: i, UUID: fmt.Sprintf("GPU-%d", i), PCI: fmt.Sprintf("0000:%02x:00.0", i), MemoryBytes: 1 << 30})
		_, err := wire.Encode(n, wire.Options{Driver: driver, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole}}})
		if beyond := i >= wire.MaxGPUs; beyond != errors.Is(err, gpu.ErrTooLarge) || !beyond && err != nil {
			t.Errorf("%d GPUs: %v", i+1, err)
		}
	}
}
