package wire_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestGolden compares what is published about one GPU of each kind with files that have a line per counter set and device. A
// changed file is a change of the attributes that users select by.
func TestGolden(t *testing.T) {
	t.Parallel()
	tests := []struct {
		file, machine string
		full          bool
		shapes        []gpu.Shape
		// withheld are memory slices of the first GPU.
		withheld gpu.Mask
		// faulty adds faults to the first GPU; evict is Options.Evict.
		faulty, evict bool
		consumable    wire.Consumable
	}{
		{file: "h100", machine: "h100x2", shapes: []gpu.Shape{gpu.Whole, gpu.MIG}},
		{file: "h100-full", machine: "h100x2", full: true, shapes: []gpu.Shape{gpu.Whole, gpu.MIG}},
		{file: "h100-withheld", machine: "h100x2", shapes: []gpu.Shape{gpu.Whole}, withheld: gpu.SpanMask(4, 4)},
		{file: "h100-shared", machine: "h100x2", shapes: []gpu.Shape{gpu.TimeShare, gpu.MPS, gpu.Monitor}},
		{file: "h100-consumable", machine: "h100x2", shapes: []gpu.Shape{gpu.TimeShare, gpu.Monitor}, consumable: wire.ConsumeShares},
		{file: "h100-faulty", machine: "h100x2", shapes: everyShape, faulty: true},
		{file: "h100-evict", machine: "h100x2", shapes: []gpu.Shape{gpu.Whole, gpu.MIG}, faulty: true, evict: true},
		{file: "a30-mig-on", machine: "a30x4l40sx4", shapes: []gpu.Shape{gpu.Whole, gpu.MIG}},
		{file: "a100-mig-off", machine: "a100-40x2", shapes: []gpu.Shape{gpu.Whole, gpu.MIG}},
		{file: "t4", machine: "t4x1", shapes: []gpu.Shape{gpu.Whole, gpu.MIG}},
		{file: "rtxpro6000", machine: "rtxpro6000x4", shapes: []gpu.Shape{gpu.Whole, gpu.MIG}},
	}
	for _, test := range tests {
		node := gputest.Node(t, test.machine)
		node.GPUs[0].Withheld = test.withheld
		o := offering(test.shapes...)
		o.Full, o.Evict, o.Consumable = test.full, test.evict, test.consumable
		if test.faulty {
			node.GPUs[0].Faults, node.GPUs[0].Held = faults(), "XID 48: Hold"
		}
		got := lines(t, node.GPUs[0].Name(), encode(t, node, o))
		path := filepath.Join("testdata", test.file+".jsonl")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// lines returns what the pool has about one GPU.
func lines(t *testing.T, gpuName string, pool wire.Pool) []byte {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	write := func(name string, v any) {
		if name != gpuName && !strings.HasPrefix(name, gpuName+"-") {
			return
		}
		if err := encoder.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range pool.Slices {
		for _, set := range s.SharedCounters {
			write(set.Name, set)
		}
		for _, d := range s.Devices {
			write(d.Name, d)
		}
	}
	return out.Bytes()
}
