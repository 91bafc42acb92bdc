package nvml

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// raw returns NVML's profile data of a model of the catalogue.
func raw(m catalog.Model, name func(catalog.Profile) string) []rawProfile {
	var all []rawProfile
	for _, p := range m.Profiles {
		r := rawProfile{enum: p.Enum, name: name(p), info: nvml.GpuInstanceProfileInfo{
			Id: uint32(p.ID), SliceCount: uint32(p.ComputeSlices), InstanceCount: uint32(p.MaxInstances),
			MultiprocessorCount: uint32(p.Multiprocessors), MemorySizeMB: p.MemoryMiB,
			CopyEngineCount: uint32(p.Engines.Copy), DecoderCount: uint32(p.Engines.Decoder), EncoderCount: uint32(p.Engines.Encoder),
			JpegCount: uint32(p.Engines.JPEG), OfaCount: uint32(p.Engines.OFA),
		}}
		for _, start := range p.Starts {
			r.placements = append(r.placements, nvml.GpuInstancePlacement{Start: uint32(start), Size: uint32(p.Size)})
		}
		all = append(all, r)
	}
	return all
}

// The geometry is the same whether the driver reports the profiles' names, as it does with MIG enabled, or not: a GPU
// that is published with 1g.10gb must not change that name with the first claim.
func TestGeometry(t *testing.T) {
	catalogue, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range catalogue {
		t.Run(m.Name, func(t *testing.T) {
			known := &models{}
			decoded, err := known.geometry(raw(m, func(p catalog.Profile) string { return "MIG " + p.Name }), m.MemoryMiB<<20)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(gputest.Geometry(t, m.Name).Profiles(), decoded.Profiles()); diff != "" {
				t.Errorf("geometry (-want +got):\n%s", diff)
			}
			computed, err := known.geometry(raw(m, func(catalog.Profile) string { return "" }), m.MemoryMiB<<20)
			if err != nil {
				t.Fatal(err)
			}
			if computed != decoded {
				t.Errorf("another geometry without the driver's names (-decoded +computed):\n%s", cmp.Diff(decoded.Profiles(), computed.Profiles()))
			}
		})
	}
}

func TestGeometryOfAnUnknownDriver(t *testing.T) {
	placed := rawProfile{name: "1g.5gb", placements: []nvml.GpuInstancePlacement{{Start: 0, Size: 1}}}
	far := rawProfile{name: "1g.5gb", placements: []nvml.GpuInstancePlacement{{Start: 40, Size: 1}}}
	tests := map[string]struct {
		profiles []rawProfile
		slices   int
		fails    bool
	}{
		"no profiles":                         {},
		"profiles without a legal placement":  {profiles: []rawProfile{{name: "1g.5gb"}}},
		"one of them has no legal placement":  {profiles: []rawProfile{{name: "2g.10gb"}, placed}, slices: 1},
		"a placement that the model can't do": {profiles: []rawProfile{far}, fails: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			geometry, err := (&models{}).geometry(test.profiles, 1<<30)
			if (err != nil) != test.fails || geometry.Slices() != test.slices {
				t.Errorf("got %d slices, %v; want %d, error %t", geometry.Slices(), err, test.slices, test.fails)
			}
		})
	}
}

// The profile that spans a GPU instance is the one with all of its SMs, regardless of its position in the list and of
// how many profiles have the same number of slices.
func TestSpanning(t *testing.T) {
	catalogue, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range catalogue {
		for _, p := range m.Profiles {
			var fitting []nvml.ComputeInstanceProfileInfo
			for _, c := range p.Compute {
				fitting = append(fitting, nvml.ComputeInstanceProfileInfo{Id: uint32(c.ID), SliceCount: uint32(c.Slices), MultiprocessorCount: uint32(c.Multiprocessors)})
			}
			got, err := spanning(fitting)
			if err != nil || int(got.MultiprocessorCount) != p.Multiprocessors || int(got.SliceCount) != p.ComputeSlices {
				t.Errorf("%s %s: got %+v, %v; want %d SMs in %d slices", m.Name, p.Name, got, err, p.Multiprocessors, p.ComputeSlices)
			}
		}
	}
	if _, err := spanning(nil); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("no profile: got %v, want unsupported", err)
	}
}

func TestMultiprocessors(t *testing.T) {
	catalogue, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range catalogue {
		if got := multiprocessors(m.Multiprocessors*m.CoresPerMultiprocessor, m.ComputeMajor, m.ComputeMinor); got != m.Multiprocessors {
			t.Errorf("%s: got %d SMs, want %d", m.Name, got, m.Multiprocessors)
		}
	}
	if got := multiprocessors(1000, 99, 0); got != 0 {
		t.Errorf("unknown architecture: got %d SMs, want 0 for unknown", got)
	}
}
