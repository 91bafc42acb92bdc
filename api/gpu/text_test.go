package gpu_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

func TestSpanMask(t *testing.T) {
	t.Parallel()
	tests := []struct {
		start, size int
		want        gpu.Mask
		text        string
	}{
		{0, 0, 0, "[]"},
		{0, 1, 0b1, "[0]"},
		{4, 4, 0b11110000, "[4 5 6 7]"},
		{9, 3, 0b111000000000, "[9 10 11]"},
		{0, 16, 0xffff, "[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]"},
		{15, 1, 0x8000, "[15]"},
		// A span that is not within 0 to MaxSlices-1 is empty and does not panic, because placements are read from files.
		{15, 2, 0, "[]"},
		{16, 0, 0, "[]"},
		{-1, 1, 0, "[]"},
		{0, -1, 0, "[]"},
		{0, 17, 0, "[]"},
		{1 << 62, 1 << 62, 0, "[]"},
	}
	for _, test := range tests {
		got := gpu.SpanMask(test.start, test.size)
		if got != test.want || got.String() != test.text {
			t.Errorf("SpanMask(%d, %d) = %v (%b), want %s (%b)", test.start, test.size, got, got, test.text, test.want)
		}
		if test.want != 0 && (got.Count() != test.size || !got.Has(test.start) || got.Has(test.start+test.size)) {
			t.Errorf("SpanMask(%d, %d): %d slices", test.start, test.size, got.Count())
		}
	}
	if gpu.Mask(0xffff).Has(-1) || gpu.Mask(0xffff).Has(16) {
		t.Error("a mask has a slice that does not exist")
	}
}

func TestNamesInFiles(t *testing.T) {
	t.Parallel()
	type file struct {
		Use  gpu.Use
		Mode gpu.Mode
	}
	tests := map[string]file{
		`{"Use":{"shape":"mig","placement":{"profile":19,"start":3,"size":1}},"Mode":"enabled"}`: {Use: mig(19, 3, 1), Mode: gpu.ModeEnabled},
		`{"Use":{"shape":"gpu"},"Mode":"disabled"}`:                                              {Use: whole(gpu.Whole), Mode: gpu.ModeDisabled},
		`{"Use":{"shape":"idle"},"Mode":"unsupported"}`:                                          {},
		`{"Use":{"shape":"monitor"},"Mode":"unsupported"}`:                                       {Use: whole(gpu.Monitor)},
	}
	for text, want := range tests {
		var got file
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		data, err := json.Marshal(want)
		if err != nil || string(data) != text {
			t.Errorf("written %s, %v, want %s", data, err, text)
		}
	}
	for _, wrong := range []string{`{"Use":{"shape":"slice"}}`, `{"Use":{"shape":2}}`, `{"Use":{"shape":""}}`, `{"Mode":"on"}`, `{"Mode":1}`} {
		var got file
		if err := json.Unmarshal([]byte(wrong), &got); err == nil {
			t.Errorf("%s: read as %+v", wrong, got)
		}
	}
}

func TestParseShape(t *testing.T) {
	t.Parallel()
	for _, want := range everyShape {
		if got, err := gpu.ParseShape(want.String()); err != nil || got != want {
			t.Errorf("ParseShape(%q) = %v, %v", want, got, err)
		}
	}
	for _, wrong := range []string{"", "idle", "GPU", "whole", "shape-99"} {
		if got, err := gpu.ParseShape(wrong); err == nil || !strings.Contains(err.Error(), "gpu, mig, timeshare, mps, vfio, monitor") {
			t.Errorf("ParseShape(%q) = %v, %v", wrong, got, err)
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	g := gputest.Geometry(t, "h100-80")
	profile, ok := g.Profile(9)
	if !ok {
		t.Fatal("no 3g")
	}
	want := mig(9, 4, 4).Placement
	fine := gpu.Instance{GPU: "gpu-0000-1b-00-0", Placement: want, GI: 2, CI: 0, UUID: "MIG-1", Multiprocessors: 60}
	tests := map[string]struct {
		change func(*gpu.Instance)
		want   string
	}{
		"as promised":         {func(*gpu.Instance) {}, ""},
		"another place":       {func(i *gpu.Instance) { i.Placement.Start = 0 }, "instance gi2/ci0 (profile 9 at slices 0-3) on gpu-0000-1b-00-0: placement must be profile 9 at slices 4-7"},
		"another profile":     {func(i *gpu.Instance) { i.Placement.Profile = 5 }, "placement must be"},
		"no compute instance": {func(i *gpu.Instance) { i.CI = gpu.NoCompute }, "has no compute instance"},
		"no UUID":             {func(i *gpu.Instance) { i.UUID = "" }, "has no compute instance"},
		"a lesser one":        {func(i *gpu.Instance) { i.Multiprocessors = 16 }, "has 16 multiprocessors, 3g.40gb promises 60"},
	}
	for name, test := range tests {
		i := fine
		test.change(&i)
		err := i.Verify(profile, want)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestNodeNames(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	upper := gpu.GPU{PCI: "0001:AF:00.0"}
	if got := upper.Name(); got != "gpu-0001-af-00-0" {
		t.Errorf("name %q", got)
	}
	g, err := node.Find("gpu-0000-1b-00-0")
	if err != nil || g.Index != 0 {
		t.Errorf("found %d, %v", g.Index, err)
	}
	if _, err := node.Find("gpu-0000-ff-00-0"); err == nil || err.Error() != "GPU gpu-0000-ff-00-0: not on node node1" {
		t.Errorf("a GPU that is not there: %v", err)
	}
}

func TestEngineNames(t *testing.T) {
	t.Parallel()
	want := []string{"ofa-engines", "decoders", "encoders", "jpeg-engines", "copy-engines"}
	all := gpu.Engines{OFA: 1, Decoder: 2, Encoder: 3, JPEG: 4, Copy: 5}
	for i, kind := range engines {
		if kind.String() != want[i] || all.Count(kind) != i+1 {
			t.Errorf("%v has %d, want %s with %d", kind, all.Count(kind), want[i], i+1)
		}
	}
}
