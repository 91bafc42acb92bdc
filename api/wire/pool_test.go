package wire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
)

const driver = "gpu.tessera.dev"

// everyShape are all shapes that can be published.
var everyShape = []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.VFIO, gpu.Monitor}

// offering returns compact options for the shapes, with ten shares per GPU.
func offering(shapes ...gpu.Shape) wire.Options {
	return wire.Options{Driver: driver, Offer: gpu.Offer{Shapes: shapes, Shares: 10}}
}

func encode(tb testing.TB, n gpu.Node, o wire.Options) wire.Pool {
	tb.Helper()
	pool, err := wire.Encode(n, o)
	if err != nil {
		tb.Fatal(err)
	}
	return pool
}

// devices returns the devices of the pool in order.
func devices(pool wire.Pool) []resourceapi.Device {
	var all []resourceapi.Device
	for _, s := range pool.Slices {
		all = append(all, s.Devices...)
	}
	return all
}

// published returns the pool as the ResourceSlices of an API server.
func published(node string, pool wire.Pool) []*resourceapi.ResourceSlice {
	var list []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		list = append(list, &resourceapi.ResourceSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{
				Name:            fmt.Sprintf("%02x-%s-%s-x7k2p", i, driver, node),
				GenerateName:    fmt.Sprintf("%02x-%s-%s-", i, driver, node),
				UID:             types.UID("0b6f6a3c-4f5e-4a51-9d52-6d4b7c0f8a11"),
				ResourceVersion: "123456",
				Generation:      1,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: "5d1c3a52-8a1e-4f0e-9b0a-3a1f0c9f7e22", Controller: new(true)}},
			},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:         driver,
				Pool:           resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				NodeName:       &node,
				SharedCounters: s.SharedCounters,
				Devices:        s.Devices,
			},
		})
	}
	return list
}

// TestIdentity checks on every machine of the catalogue and on random nodes that a published device decodes to the device from
// which it was encoded, and that the API server would accept the pool.
func TestIdentity(t *testing.T) {
	t.Parallel()
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		for _, full := range []bool{false, true} {
			o := offering(everyShape...)
			o.Full = full
			identity(t, gputest.Node(t, m.Name), o)
		}
	}
	models, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("random", rapid.MakeCheck(func(t *rapid.T) {
		n := anyNode(t, models)
		identity(t, n, wire.Options{
			Driver: rapid.SampledFrom([]string{driver, "gpu.nvidia.com"}).Draw(t, "driver"),
			Full:   rapid.Bool().Draw(t, "full"),
			Evict:  rapid.Bool().Draw(t, "evict"),
			Offer: gpu.Offer{
				Shapes:   rapid.SliceOfDistinct(rapid.SampledFrom(everyShape), rapid.ID[gpu.Shape]).Draw(t, "shapes"),
				Profiles: rapid.SampledFrom([][]string{nil, {"1g.10gb"}, {"1g.10gb", "3g.40gb"}, {"none"}}).Draw(t, "profiles"),
				Shares:   rapid.IntRange(1, 200).Draw(t, "shares"),
			},
		})
	}))
}

func identity(tb rapid.TB, n gpu.Node, o wire.Options) {
	tb.Helper()
	pool, err := wire.Encode(n, o)
	if err != nil {
		tb.Fatal(err)
	}
	if problems := reviewed(pool); len(problems) > 0 {
		tb.Fatalf("%s: refused:\n%s", n.Name, strings.Join(problems, "\n"))
	}
	var decoded []gpu.Device
	for _, d := range devices(pool) {
		back, err := wire.Decode(resourceapi.DeviceRequestAllocationResult{Driver: o.Driver, Pool: pool.Name, Device: d.Name}, n, o)
		if err != nil {
			tb.Fatal(err)
		}
		decoded = append(decoded, back)
	}
	if offered := n.Devices(o.Offer); !slices.Equal(offered, decoded) {
		tb.Fatalf("devices (-offered +decoded):\n%s", cmp.Diff(offered, decoded))
	}
	together(tb, pool, decoded)
	again, err := wire.Encode(n, o)
	if err != nil || !reflect.DeepEqual(pool, again) {
		tb.Fatalf("encoded again: %v\n%s", err, cmp.Diff(pool, again))
	}
}

// together checks that the devices of each GPU, given for all GPUs in order, are in as few ResourceSlices as possible.
func together(tb rapid.TB, pool wire.Pool, all []gpu.Device) {
	tb.Helper()
	const most = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
	parts, sizes := map[string]int{}, map[string]int{}
	for _, s := range pool.Slices {
		here := map[string]bool{}
		for range s.Devices {
			here[all[0].GPU] = true
			sizes[all[0].GPU]++
			all = all[1:]
		}
		for name := range here {
			parts[name]++
		}
	}
	for name, n := range parts {
		if n != (sizes[name]+most-1)/most {
			tb.Fatalf("the %d devices of %s lie in %d slices", sizes[name], name, n)
		}
	}
}

// anyNode draws a node of known models in any state, with arbitrary texts.
func anyNode(t *rapid.T, models []catalog.Model) gpu.Node {
	text := rapid.String()
	n := gpu.Node{
		Name:          rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?`).Draw(t, "name"),
		DriverVersion: rapid.OneOf(rapid.StringMatching(`[0-9]{1,4}(\.[0-9]{1,3}){0,4}`), text).Draw(t, "driver version"),
		CUDAVersion:   rapid.OneOf(rapid.StringMatching(`[0-9]{1,2}\.[0-9]`), text).Draw(t, "CUDA version"),
	}
	for i := range rapid.IntRange(0, 10).Draw(t, "GPUs") {
		model := rapid.SampledFrom(models).Draw(t, "model")
		geometry, err := model.Geometry()
		if err != nil {
			t.Fatal(err)
		}
		g := gpu.GPU{
			PCI: fmt.Sprintf("%04X:%02x:00.0", rapid.IntRange(0, 0xfffff).Draw(t, "domain"), i), Index: i, Minor: i,
			UUID: "GPU-" + text.Draw(t, "uuid"), Product: text.Draw(t, "product"), Brand: text.Draw(t, "brand"),
			Architecture: model.Architecture, ComputeMajor: model.ComputeMajor, ComputeMinor: model.ComputeMinor,
			MemoryBytes: rapid.Uint64Range(0, 1<<40).Draw(t, "memory"), Multiprocessors: rapid.IntRange(0, 200).Draw(t, "SMs"),
			Geometry: geometry, Withheld: gpu.Mask(rapid.Uint16().Draw(t, "withheld")),
			NUMA: rapid.IntRange(-1, 7).Draw(t, "NUMA"), PCIeRoot: text.Draw(t, "root"), Clique: text.Draw(t, "clique"),
		}
		if geometry != nil {
			g.Mode = rapid.SampledFrom([]gpu.Mode{gpu.ModeDisabled, gpu.ModeEnabled}).Draw(t, "mode")
		}
		g.Held = rapid.SampledFrom([]string{"", "XID 79"}).Draw(t, "held")
		g.Maintenance = rapid.SampledFrom([]string{"", "DriverSwap"}).Draw(t, "maintenance")
		for range rapid.IntRange(0, 20).Draw(t, "faults") {
			g.Faults = append(g.Faults, anyFault(t, geometry))
		}
		for range rapid.IntRange(0, 20).Draw(t, "links") {
			g.Links = append(g.Links, gpu.Link(rapid.IntRange(-1, 30).Draw(t, "link")))
		}
		n.GPUs = append(n.GPUs, g)
	}
	return n
}

// anyFault draws a fault of a GPU, with a signal of this or of another release.
func anyFault(t *rapid.T, geometry *gpu.Geometry) gpu.Fault {
	uses := gpu.GPU{Geometry: geometry}.AllUses()
	return gpu.Fault{
		Signal: rapid.SampledFrom(append(gpu.Signals(), "cosmic", "a", "b", "c", "d", "e", "f", "g")).Draw(t, "signal"), XID: rapid.IntRange(0, 65535).Draw(t, "XID"),
		Placement: rapid.SampledFrom(uses).Draw(t, "use").Placement, Severity: gpu.Severity(rapid.IntRange(0, 3).Draw(t, "severity")),
		Since: time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "since"), rapid.Int64Range(0, 1e9).Draw(t, "nanoseconds")),
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	var names []string
	for _, d := range devices(encode(t, gputest.Node(t, "h100x2"), offering(everyShape...))) {
		if name, ok := strings.CutPrefix(d.Name, "gpu-0000-1b-00-0"); ok {
			names = append(names, name)
		}
	}
	want := []string{
		"-mig-19-6", "-mig-19-4", "-mig-19-5", "-mig-19-0", "-mig-19-1", "-mig-19-2", "-mig-19-3",
		"-mig-20-6", "-mig-20-4", "-mig-20-5", "-mig-20-0", "-mig-20-1", "-mig-20-2", "-mig-20-3",
		"-mig-15-6", "-mig-15-4", "-mig-15-0", "-mig-15-2",
		"-mig-14-4", "-mig-14-0", "-mig-14-2",
		"-mig-9-4", "-mig-9-0", "-mig-5-0", "-mig-0-0",
		"-timeshare", "-mps", "", "-monitor",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("devices of one H100, cheapest first (-want +got):\n%s", diff)
	}
}

// TestSandbox checks the device of a GPU that was read without its driver: no UUID, and the attributes that KubeVirt reads.
func TestSandbox(t *testing.T) {
	t.Parallel()
	n := gpu.Node{Name: "node1", GPUs: []gpu.GPU{
		{PCI: "0000:17:00.0", Product: "NVIDIA H100 80GB HBM3", MemoryBytes: 80 << 30, NUMA: 1, PCIeRoot: "pci0000:16", IOMMUGroup: "31"},
		{PCI: "0000:2a:00.0", Index: 1, NUMA: -1}, // its IOMMU group is shared
	}}
	pool := encode(t, n, offering(gpu.VFIO))
	found := devices(pool)
	if len(found) != 1 || found[0].Name != "gpu-0000-17-00-0-vfio" {
		t.Fatalf("devices: %+v", found)
	}
	got := map[string]string{}
	for name, a := range found[0].Attributes {
		switch {
		case a.StringValue != nil:
			got[string(name)] = *a.StringValue
		case a.IntValue != nil:
			got[string(name)] = fmt.Sprint(*a.IntValue)
		}
	}
	want := map[string]string{
		"type": "vfio", "productName": "NVIDIA H100 80GB HBM3", "index": "0", "iommuGroup": "31",
		"resource.kubernetes.io/pciBusID": "0000:17:00.0", "resource.kubernetes.io/pcieRoot": "pci0000:16", "resource.kubernetes.io/numaNode": "1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	read := wire.Read(list("node1", driver, pool))[0]
	if len(read.GPUs) != 1 || len(read.GPUs[0].Devices) != 1 || len(read.Invalid) > 0 {
		t.Fatalf("read back: %+v", read)
	}
	if g := read.GPUs[0]; g.GPU.PCI != "0000:17:00.0" || g.GPU.IOMMUGroup != "31" || g.GPU.UUID != "" || g.Devices[0].Use.Shape != gpu.VFIO {
		t.Errorf("read back: %+v", g)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		machine string
		shapes  []gpu.Shape
		// want has the number of counter sets and of devices of each ResourceSlice.
		want [][2]int
	}{
		{"t4x1", []gpu.Shape{gpu.Whole, gpu.MIG}, [][2]int{{1, 0}, {0, 1}}},
		{"h100x8", []gpu.Shape{gpu.Whole, gpu.MIG}, [][2]int{{8, 0}, {0, 52}, {0, 52}, {0, 52}, {0, 52}}},
		{"rtxpro6000x4", []gpu.Shape{gpu.Whole, gpu.MIG}, [][2]int{{4, 0}, {0, 62}, {0, 62}}},
		// 16 GPUs: 2 H100 and 2 B200 with 26 devices each, 2 RTX PRO 6000 with 31 each. Of the four Ampere GPUs with MIG, one
		// A100 with 25 and one A30 with 13 devices are in MIG mode, and one of each is not. The rest has no MIG.
		{"mixed16", []gpu.Shape{gpu.Whole, gpu.MIG}, [][2]int{{8, 0}, {8, 0}, {0, 52}, {0, 52}, {0, 40}, {0, 57}, {0, 35}}},
		{"h100x2", nil, [][2]int{{0, 0}}},
	}
	for _, test := range tests {
		node := gputest.Node(t, test.machine)
		var got [][2]int
		for _, s := range encode(t, node, offering(test.shapes...)).Slices {
			got = append(got, [2]int{len(s.SharedCounters), len(s.Devices)})
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: counter sets and devices (-want +got):\n%s", test.machine, diff)
		}
	}
	lost := gputest.Node(t, "h100x2")
	lost.GPUs = append(lost.GPUs, gpu.GPU{Index: 2, Lost: true}, gpu.GPU{Index: 3, Lost: true})
	pool := encode(t, lost, offering(gpu.Whole))
	if sets, count := len(pool.Slices[0].SharedCounters), len(devices(pool)); sets != 2 || count != 2 {
		t.Errorf("with two GPUs that were never read: %d counter sets, %d devices", sets, count)
	}
	if links := *devices(pool)[0].Attributes[wire.Links].StringValue; links != "-I??" {
		t.Errorf("with two GPUs that were never read: links %q", links)
	}
	empty := encode(t, gpu.Node{Name: "bare"}, offering(gpu.Whole))
	if diff := cmp.Diff(wire.Pool{Name: "bare-gpu.tessera.dev", Slices: []wire.Slice{{}}}, empty); diff != "" {
		t.Errorf("node without GPUs (-want +got):\n%s", diff)
	}
}

// TestBudget checks the maximum size of a node's ResourceSlices in the API server.
func TestBudget(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		full   bool
		shapes []gpu.Shape
		// faulty taints every device: for a fault of its GPU that needs a reset, and because the GPU is held.
		faulty bool
		// kib is the limit in KiB.
		kib float64
	}{
		{"compact, every shape and monitors", false, []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, false, 160},
		{"full, every shape and monitors", true, []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, false, 260},
		{"compact, whole and MIG", false, []gpu.Shape{gpu.Whole, gpu.MIG}, false, 160},
		{"full, whole and MIG", true, []gpu.Shape{gpu.Whole, gpu.MIG}, false, 260},
		{"compact, every shape, every device tainted twice", false, []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, true, 200},
		{"full, every shape, every device tainted twice", true, []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, true, 300},
	}
	for _, test := range tests {
		o := offering(test.shapes...)
		o.Full = test.full
		node := gputest.Node(t, "h100x8")
		for i := range node.GPUs {
			if test.faulty {
				node.GPUs[i].Faults, node.GPUs[i].Held = []gpu.Fault{{Signal: gpu.SignalXID, XID: 119, Severity: gpu.Fatal, Since: noon}}, "XID 119"
			}
		}
		total, count := 0, 0
		for _, s := range published("ip-10-0-0-1.example.com", encode(t, node, o)) {
			data, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			total, count = total+len(data), count+len(s.Spec.Devices)
		}
		kib := float64(total) / 1024
		t.Logf("8 x H100, %s: %d devices, %.1f KiB of %.0f", test.name, count, kib, test.kib)
		if kib > test.kib {
			t.Errorf("8 x H100, %s: %.1f KiB, at most %.0f", test.name, kib, test.kib)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	twins := gputest.Node(t, "h100x2")
	twins.GPUs[1].PCI = twins.GPUs[0].PCI
	odd := gputest.Node(t, "t4x1")
	odd.GPUs[0].PCI = "0000:3b:00.0/1"
	nameless := gputest.Node(t, "t4x1")
	nameless.Name = ""
	tests := []struct {
		name string
		node gpu.Node
		o    wire.Options
		want string
	}{
		{"two GPUs of one name", twins, offering(gpu.Whole), `encode pool "node1-gpu.tessera.dev": two GPUs have the name gpu-0000-1b-00-0`},
		{"GPU name", odd, offering(gpu.Whole), `device "gpu-0000-3b-00-0/1": a lowercase`},
		{"no node name", nameless, offering(gpu.Whole), `pool "-gpu.tessera.dev": name: a lowercase`},
		{"no shares", gputest.Node(t, "t4x1"), wire.Options{Driver: driver, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.MPS}}}, "shares per GPU: 0, must be at least 1"},
	}
	for _, test := range tests {
		if _, err := wire.Encode(test.node, test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "t4x1")
	pool := "node1-gpu.tessera.dev"
	tests := map[string]struct {
		result resourceapi.DeviceRequestAllocationResult
		want   string
	}{
		"unknown device": {resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Device: "gpu-0000-ff-00-0"}, `device "gpu-0000-ff-00-0" of pool "node1-gpu.tessera.dev": no such device on node node1`},
		"no MIG here":    {resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Device: "gpu-0000-00-1e-0-mig-19-0"}, "no such device on node node1"},
		"other pool":     {resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: "node2-gpu.tessera.dev", Device: "gpu-0000-00-1e-0"}, `device "gpu-0000-00-1e-0" of pool "node2-gpu.tessera.dev"`},
		"other driver":   {resourceapi.DeviceRequestAllocationResult{Driver: "dra.example.com", Pool: pool, Device: "gpu-0000-00-1e-0"}, `driver "dra.example.com"`},
	}
	for name, test := range tests {
		d, err := wire.Decode(test.result, node, offering(gpu.Whole))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v, want %q", name, d, err, test.want)
		}
	}
}

// TestDecodeOutlivesOffer checks that claims which were allocated before the offer was narrowed can still be decoded.
func TestDecodeOutlivesOffer(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	wide := encode(t, node, offering(gpu.Whole, gpu.MIG))
	for _, d := range devices(wide) {
		if _, err := wire.Decode(resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: wide.Name, Device: d.Name}, node, offering(gpu.Whole)); err != nil {
			t.Error(err)
		}
	}
}
