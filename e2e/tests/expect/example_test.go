package expect

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLoad(t *testing.T) {
	one := 1
	folder := fstest.MapFS{
		"b.yaml": {Data: []byte("# Three objects.\n# And more words.\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n" +
			"---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  annotations:\n    tessera.dev/expect: |\n      phase: Refused\n      reason: denied\n" +
			"---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\n  namespace: team\n  annotations:\n    tessera.dev/expect: |\n      gpus: 1\n")},
		"a.yaml":    {Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n")},
		"README.md": {Data: []byte("not a manifest")},
	}
	got, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := []Example{
		{File: "a.yaml"},
		{File: "b.yaml", Title: "Three objects", Subjects: []Subject{
			{Kind: "Secret", Namespace: "default", Name: "s", Expectation: Expectation{Phase: Refused, Reason: "denied"}},
			{Kind: "Job", Namespace: "team", Name: "j", Expectation: Expectation{Phase: Succeeded, View: View{GPUs: &one}}},
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Example{}, "Text", "Objects")); diff != "" {
		t.Errorf("examples (-want +got):\n%s", diff)
	}
	if len(got) == 2 && len(got[1].Objects) != 3 {
		t.Errorf("objects of b.yaml: got %d, want 3", len(got[1].Objects))
	}
}

func TestLoadRefuses(t *testing.T) {
	tests := map[string]struct{ text, err string }{
		"no expectation":  {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "pod default/p: no annotation tessera.dev/expect"},
		"bad expectation": {"apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {tessera.dev/expect: 'cpus: 1'}}\n", `unknown field "cpus"`},
		"Deployment too":  {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n", "deployment default/d: no annotation tessera.dev/expect"},
		"does not run":    {"apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {tessera.dev/expect: 'gpus: 1'}}\n", "secret default/s: phase Succeeded: only a Pod"},
		"not YAML":        {"kind: [", "read example x.yaml"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Load(fstest.MapFS{"x.yaml": {Data: []byte(test.text)}})
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error: got %v, want one with %q", err, test.err)
			}
		})
	}
}

// TestParseListOfNVIDIASMI reads output of nvidia-smi -L.
func TestParseListOfNVIDIASMI(t *testing.T) {
	for name, test := range map[string]struct {
		log  string
		want []Seen
	}{
		// The MIG user guide, section "Running CUDA Applications on Bare-Metal", with a second GPU.
		"older drivers": {
			"GPU 0: A100-SXM4-40GB (UUID: GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0)\n" +
				"  MIG 3g.20gb Device 0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)\n" +
				"  MIG 3g.20gb Device 1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)\n" +
				"GPU 1: A100-SXM4-40GB (UUID: GPU-20dfea8c-8b36-4c3d-8a6c-b1ec5e0d3c0f)\n",
			[]Seen{
				{Profile: "3g.20gb", UUID: "MIG-c7384736-a75d-5afc-978f-d2f1294409fd", Parent: "GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0", Name: "A100-SXM4-40GB"},
				{Profile: "3g.20gb", UUID: "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d", Parent: "GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0", Name: "A100-SXM4-40GB"},
				{UUID: "GPU-20dfea8c-8b36-4c3d-8a6c-b1ec5e0d3c0f", Name: "A100-SXM4-40GB"},
			},
		},
		// A published capture from a pod with a MIG device of an H100.
		"a pod": {
			"warning\nGPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-950792bf-a01c-3f1a-e122-3473e67f54b2)\n" +
				"  MIG 3g.40gb     Device  0: (UUID: MIG-b3061c09-2a4c-5026-a575-79f86a5bb12c)\n",
			[]Seen{{
				Profile: "3g.40gb", UUID: "MIG-b3061c09-2a4c-5026-a575-79f86a5bb12c", Parent: "GPU-950792bf-a01c-3f1a-e122-3473e67f54b2",
				Name: "NVIDIA H100 80GB HBM3",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseReport(test.log)
			if !ok {
				t.Fatal("the list was not found")
			}
			if diff := cmp.Diff(test.want, got.Devices()); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseReport(t *testing.T) {
	log := "open libcuda.so.1: not found\n" + report(gpuA, slice("GPU-b", instance("MIG-1", "1g.10gb+me", 9984, 16))) + "done\n"
	got, ok := ParseReport(log)
	if !ok {
		t.Fatal("the report was not found")
	}
	want := []Seen{
		{UUID: "GPU-a", Name: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559},
		{Profile: "1g.10gb+me", UUID: "MIG-1", Parent: "GPU-b", Name: "NVIDIA H100 80GB HBM3", MemoryMiB: 9984, Multiprocessors: 16},
	}
	if diff := cmp.Diff(want, got.Devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	for _, log := range []string{"", "No devices found.\n", "Test PASSED\n", `{"gpus":` + "\n"} {
		if _, ok := ParseReport(log); ok {
			t.Errorf("a report was found in %q", log)
		}
	}
}
