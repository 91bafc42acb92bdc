package wire_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
)

// list returns the pool as a client lists it, in reverse order.
func list(node, driver string, pool wire.Pool) []resourceapi.ResourceSlice {
	var all []resourceapi.ResourceSlice
	for _, s := range published(node, pool) {
		s.Spec.Driver = driver
		all = append([]resourceapi.ResourceSlice{*s}, all...)
	}
	return all
}

// sameGeometry compares geometries by their profiles.
var sameGeometry = cmp.Transformer("Profiles", func(g *gpu.Geometry) []gpu.Profile { return g.Profiles() })

// TestReadEveryMachine checks on every machine of the catalogue that Read returns what was published: every attribute of some
// device, every device, every profile.
func TestReadEveryMachine(t *testing.T) {
	t.Parallel()
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		for _, full := range []bool{false, true} {
			o := offering(everyShape...)
			o.Full = full
			node := gputest.Node(t, m.Name)
			node.GPUs[0].Withheld = gpu.SpanMask(1, 2)
			readings := wire.Read(list(node.Name, o.Driver, encode(t, node, o)))
			if len(readings) != 1 {
				t.Fatalf("%s: %d readings", m.Name, len(readings))
			}
			var want []wire.PublishedGPU
			for _, g := range node.GPUs {
				want = append(want, publishedGPU(g, o))
			}
			r := readings[0]
			if diff := cmp.Diff(want, r.GPUs, sameGeometry, cmpopts.EquateEmpty()); diff != "" || len(r.Invalid) > 0 {
				t.Fatalf("%s, full %v: strange %v (-want +got):\n%s", m.Name, full, r.Invalid, diff)
			}
			if !r.Complete || r.Node != node.Name || r.Pool != "node1-"+driver || r.DriverVersion != "580.65.6" || r.CUDAVersion != "13.0.0" {
				t.Errorf("%s: read %q of %q, complete %v, driver %q, CUDA %q", m.Name, r.Pool, r.Node, r.Complete, r.DriverVersion, r.CUDAVersion)
			}
		}
	}
}

// publishedGPU returns the expected PublishedGPU for the options, implemented independently.
func publishedGPU(g gpu.GPU, o wire.Options) wire.PublishedGPU {
	p := wire.PublishedGPU{Name: g.Name(), GPU: g}
	for _, use := range g.Uses(o.Offer) {
		p.Devices = append(p.Devices, wire.PublishedDevice{Name: wire.DeviceName(gpu.Device{GPU: g.Name(), Use: use}), Use: use})
	}
	offers := func(shape gpu.Shape) bool {
		return slices.ContainsFunc(p.Devices, func(d wire.PublishedDevice) bool { return d.Use.Shape == shape })
	}
	p.GPU.Mode, p.GPU.Pending = 0, 0
	p.GPU.Withheld &= g.Geometry.Total().Slices
	for _, shape := range []gpu.Shape{gpu.TimeShare, gpu.MPS} {
		if offers(shape) {
			p.Shares, p.GPU.ShareableBytes = o.Offer.Shares, g.ShareableBytes>>30<<30 // claims have whole GiB
			p.MemoryEnforced = map[gpu.Shape]string{gpu.TimeShare: "none", gpu.MPS: "none"}
		}
	}
	if p.Shares == 0 {
		p.GPU.ShareableBytes = 0
	}
	if !offers(gpu.Whole) {
		p.GPU.MemoryBytes, p.GPU.Multiprocessors, p.GPU.Links, p.GPU.Clique = 0, 0, nil, ""
		if !o.Full {
			p.GPU.PCI, p.GPU.Minor, p.GPU.Brand, p.GPU.Architecture, p.GPU.ECC = "", 0, "", "", nil
			p.GPU.ComputeMajor, p.GPU.ComputeMinor = 0, 0
		}
	}
	if !offers(gpu.MIG) {
		p.GPU.Geometry = nil
	} else if !o.Full {
		p.GPU.Geometry = onlyBinding(p.GPU.Geometry)
	}
	return p
}

// onlyBinding returns the geometry whose profiles have the engines of the binding kinds only, as compact devices publish them.
func onlyBinding(g *gpu.Geometry) *gpu.Geometry {
	profiles := g.Profiles()
	for i := range profiles {
		cost, err := g.Cost(gpu.Use{Shape: gpu.MIG, Placement: g.Placements(profiles[i].ID)[0]})
		if err != nil {
			panic(err)
		}
		profiles[i].Engines = cost.Engines
	}
	only, err := gpu.NewGeometry(profiles)
	if err != nil {
		panic(err)
	}
	return only
}

// TestReadDecides checks on random nodes and offers that a reader of the ResourceSlices comes to the same decisions as the
// node: equal costs, and equal results of every Take and Release.
func TestReadDecides(t *testing.T) {
	t.Parallel()
	models, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := anyNode(t, models)
		for i := range n.GPUs {
			n.GPUs[i].UUID = fmt.Sprintf("GPU-%d", i)
		}
		o := wire.Options{
			Driver: driver, Full: rapid.Bool().Draw(t, "full"),
			Offer: gpu.Offer{
				Shapes:   rapid.SliceOfDistinct(rapid.SampledFrom(everyShape), rapid.ID[gpu.Shape]).Draw(t, "shapes"),
				Profiles: rapid.SampledFrom([][]string{nil, {"1g.10gb"}, {"1g.24gb", "1g.24gb+me"}, {"1g.10gb+me", "2g.20gb"}}).Draw(t, "profiles"),
				Shares:   rapid.IntRange(1, 20).Draw(t, "shares"),
			},
		}
		pool, err := wire.Encode(n, o)
		if err != nil {
			t.Fatal(err)
		}
		r := wire.Read(list(n.Name, driver, pool))[0]
		if len(r.Invalid) > 0 {
			t.Fatalf("strange: %v", r.Invalid)
		}
		var names []string
		for _, g := range r.GPUs {
			for _, d := range g.Devices {
				names = append(names, d.Name)
			}
			decides(t, n, o, g)
		}
		var want []string
		for _, d := range n.Devices(o.Offer) {
			want = append(want, wire.DeviceName(d))
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Fatalf("devices (-offered +read):\n%s", diff)
		}
	})
}

// decides takes and releases random uses on both sides and compares the results.
func decides(t *rapid.T, n gpu.Node, o wire.Options, read wire.PublishedGPU) {
	var here gpu.GPU
	for _, g := range n.GPUs {
		if g.UUID == read.GPU.UUID {
			here = g
		}
	}
	far, near := read.GPU.Empty(read.Shares).Withhold(read.GPU.Withheld), here.Empty(o.Offer.Shares).Withhold(here.Withheld)
	for _, d := range read.Devices {
		use := d.Use
		if use.Shape.Shared() {
			use.Share = gpu.Share{MemoryBytes: rapid.Uint64Range(0, here.MemoryBytes).Draw(t, "bytes"), Shares: rapid.IntRange(1, 3).Draw(t, "shares")}
		}
		if !rapid.Bool().Draw(t, "try") {
			continue
		}
		var farErr, nearErr error
		far, farErr = far.Take(use)
		near, nearErr = near.Take(use)
		if (farErr == nil) != (nearErr == nil) || far.Shape() != near.Shape() || far.Free() != near.Free() && read.GPU.Geometry != nil {
			t.Fatalf("take %v on %s: the node returns %v, the reader %v", use, here.Product, nearErr, farErr)
		}
	}
}

func TestReadResult(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	pool := encode(t, node, offering(everyShape...))
	r := wire.Read(list("node1", driver, pool))[0]
	for _, d := range devices(pool) {
		result := resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: pool.Name, Device: d.Name}
		if d.AllowMultipleAllocations != nil {
			result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
				"memory": resource.MustParse("12Gi"), driver + "/shares": resource.MustParse("2"), "compute": resource.MustParse("25"),
			}
		}
		want, err := wire.Decode(result, node, offering(everyShape...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Decode(result)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-node +reading):\n%s", d.Name, err, diff)
		}
	}
	for _, bad := range []resourceapi.DeviceRequestAllocationResult{
		{Driver: driver, Pool: pool.Name, Device: "gpu-0"}, {Driver: driver, Pool: "p", Device: node.GPUs[0].Name()}, {Driver: "d", Pool: pool.Name, Device: node.GPUs[0].Name()},
	} {
		if got, err := r.Decode(bad); err == nil || !strings.Contains(err.Error(), bad.Device) {
			t.Errorf("%+v: got %v, %v", bad, got, err)
		}
	}
}

// TestReadStrange checks that invalid devices are reported and do not prevent reading the others.
func TestReadStrange(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(d *resourceapi.Device)
		want  string
	}{
		"no type":       {func(d *resourceapi.Device) { delete(d.Attributes, wire.Type) }, "attribute type: shape \"\": must be one of"},
		"no UUID":       {func(d *resourceapi.Device) { delete(d.Attributes, wire.ParentUUID) }, "attributes uuid and parentUUID: none is set"},
		"no profile id": {func(d *resourceapi.Device) { delete(d.Attributes, wire.MIGProfileID) }, "attribute migProfileID: must be set"},
		"no counters":   {func(d *resourceapi.Device) { d.ConsumesCounters = nil }, "consumes from 0 counter sets"},
		"another size":  {func(d *resourceapi.Device) { delete(d.ConsumesCounters[0].Counters, "memory-slice-6") }, "consumes no memory slices"},
		"another start": {func(d *resourceapi.Device) {
			d.Attributes[wire.MIGStart] = resourceapi.DeviceAttribute{IntValue: new(int64(2))}
		}, "consumes memory slices [6]"},
		"a far start": {func(d *resourceapi.Device) {
			d.Attributes[wire.MIGStart] = resourceapi.DeviceAttribute{IntValue: new(int64(77))}
		}, "outside memory slices"},
		"another's name": {func(d *resourceapi.Device) {
			d.Attributes[wire.Profile] = resourceapi.DeviceAttribute{StringValue: new("9g.9gb")}
		}, "profile 19 is"},
	}
	for name, test := range tests {
		slicesOf := list("node1", driver, encode(t, gputest.Node(t, "h100x2"), offering(gpu.Whole, gpu.MIG)))
		first := slices.IndexFunc(slicesOf, func(s resourceapi.ResourceSlice) bool {
			return slices.ContainsFunc(s.Spec.Devices, func(d resourceapi.Device) bool { return d.Name == "gpu-0000-1b-00-0-mig-19-6" })
		})
		i := slices.IndexFunc(slicesOf[first].Spec.Devices, func(d resourceapi.Device) bool { return d.Name == "gpu-0000-1b-00-0-mig-19-6" })
		test.spoil(&slicesOf[first].Spec.Devices[i])
		r := wire.Read(slicesOf)[0]
		if len(r.Invalid) == 0 || !strings.Contains(fmt.Sprint(r.Invalid), test.want) {
			t.Errorf("%s: strange is %v, want %q", name, r.Invalid, test.want)
		}
		if _, _, err := r.Find(r.GPUs[len(r.GPUs)-1].Devices[0].Name); err != nil || len(r.GPUs[len(r.GPUs)-1].Devices) != 26 {
			t.Errorf("%s: the other GPU has %d devices, %v", name, len(r.GPUs[len(r.GPUs)-1].Devices), err)
		}
	}
}

func TestReadGenerations(t *testing.T) {
	t.Parallel()
	o := offering(gpu.Whole)
	older := list("node1", driver, encode(t, gputest.Node(t, "h100x8"), o))
	newer := list("node1", driver, encode(t, gputest.Node(t, "h100x2"), o))
	for i := range newer {
		newer[i].Spec.Pool.Generation = 2
	}
	other := list("node2", driver, encode(t, gputest.Node(t, "t4x1"), o))
	for i := range other {
		other[i].Spec.Pool.Name = "node2-" + driver
	}
	readings := wire.Read(slices.Concat(other, older, newer))
	if len(readings) != 2 || readings[0].Node != "node1" || len(readings[0].GPUs) != 2 || readings[0].Generation != 2 || !readings[0].Complete {
		t.Fatalf("readings: %+v", readings)
	}
	if got := readings[1].GPUs[0].GPU; got.Geometry != nil || got.Product != "Tesla T4" {
		t.Errorf("node2 has %+v", got)
	}
	// Counter sets are in other ResourceSlices than devices. Without them no use can be verified.
	partial := wire.Read(newer[:1])[0]
	if partial.Complete || len(partial.GPUs) != 0 || len(partial.Invalid) != 2 {
		t.Errorf("one slice of two: %+v", partial)
	}
}

// TestReadAllocatesLittle limits the allocations for a node of 8 H100 in all shapes, of which a scheduler reads thousands at its
// start.
func TestReadAllocatesLittle(t *testing.T) {
	node, o := gputest.Node(t, "h100x8"), offering(everyShape...)
	all := list(node.Name, o.Driver, encode(t, node, o))
	devices := 0
	for i := range all {
		devices += len(all[i].Spec.Devices)
	}
	const most = 4
	if got := testing.AllocsPerRun(10, func() { wire.Read(all) }); got > float64(most*devices) {
		t.Errorf("%v allocations for %d devices, want at most %d for each", got, devices, most)
	} else {
		t.Logf("%v allocations for %d devices", got, devices)
	}
}

// TestReadQualifiedNames reads a node whose attributes and capacities have the domain of the driver in their names.
func TestReadQualifiedNames(t *testing.T) {
	node, o := gputest.Node(t, "h100x8"), offering(everyShape...)
	all := list(node.Name, o.Driver, encode(t, node, o))
	want := wire.Read(all)
	for _, s := range all {
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			d.Attributes, d.Capacity = qualify(d.Attributes, o.Driver), qualify(d.Capacity, o.Driver)
		}
	}
	if diff := cmp.Diff(want, wire.Read(all), sameGeometry); diff != "" {
		t.Errorf("(-without +with domain):\n%s", diff)
	}
}

// qualify returns the map with the domain in all names without one.
func qualify[V any](named map[resourceapi.QualifiedName]V, domain string) map[resourceapi.QualifiedName]V {
	all := map[resourceapi.QualifiedName]V{}
	for name, v := range named {
		if !strings.Contains(string(name), "/") {
			name = resourceapi.QualifiedName(domain) + "/" + name
		}
		all[name] = v
	}
	return all
}

func BenchmarkRead(b *testing.B) {
	node, o := gputest.Node(b, "h100x8"), offering(everyShape...)
	all := list(node.Name, o.Driver, encode(b, node, o))
	b.ReportAllocs()
	for b.Loop() {
		wire.Read(all)
	}
}
