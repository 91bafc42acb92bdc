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
	for _, log := range []string{"", "Test PASSED\n", `{"gpus":` + "\n"} {
		if _, ok := ParseReport(log); ok {
			t.Errorf("a report was found in %q", log)
		}
	}
}
