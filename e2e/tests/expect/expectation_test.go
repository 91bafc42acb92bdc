package expect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestParse(t *testing.T) {
	one, least := 1, resource.MustParse("19Gi")
	tests := map[string]struct {
		text string
		want Expectation
		err  string
	}{
		"one GPU": {
			text: "gpus: 1",
			want: Expectation{Phase: Succeeded, View: View{GPUs: &one}},
		},
		"by container": {
			text: "phase: Running\ndevices: distinct\ncontainers: {a: {mig: [1g.10gb]}, b: {mig: ['*'], memory: 19Gi}}",
			want: Expectation{Phase: Running, Devices: Distinct, Containers: map[string]View{
				"a": {MIG: []string{"1g.10gb"}},
				"b": {MIG: []string{"*"}, Memory: &least},
			}},
		},
		"pending": {
			text: "phase: Pending\nreason: cannot allocate all claims",
			want: Expectation{Phase: Pending, Reason: "cannot allocate all claims"},
		},
		"refused": {
			text: "phase: Refused\nreason: exceeded quota",
			want: Expectation{Phase: Refused, Reason: "exceeded quota"},
		},
		"a share": {
			text: "gpus: 1\nallocates: 19Gi\nmultiprocessors: 1\nwhile: other",
			want: Expectation{Phase: Succeeded, View: View{GPUs: &one, Allocates: &least, Multiprocessors: &one}, While: "other"},
		},
		"a watcher": {
			text: "watches: 1",
			want: Expectation{Phase: Succeeded, View: View{Watches: &one}},
		},
		"unknown field":         {text: "gpus: 1\nmogs: 2", err: `unknown field "mogs"`},
		"not YAML":              {text: "gpus: [", err: "parse tessera.dev/expect"},
		"nothing":               {text: "", err: "nothing is expected"},
		"empty container":       {text: "containers: {a: {}}", err: "containers.a: nothing is expected"},
		"bad phase":             {text: "phase: Done\ngpus: 1", err: `phase "Done": must be one of Succeeded, Running, Pending, Refused`},
		"bad relation":          {text: "devices: equal\ngpus: 1", err: `devices "equal": must be same or distinct`},
		"never expected":        {text: "phase: Accepted\ngpus: 1", err: `phase "Accepted": must be`},
		"negative":              {text: "gpus: -1", err: "gpus -1"},
		"watches less":          {text: "watches: -1", err: "watches -1"},
		"bad pattern":           {text: "mig: ['[']", err: `mig "["`},
		"pending, no reason":    {text: "phase: Pending", err: "state the reason"},
		"pending, sees":         {text: "phase: Pending\nreason: full\ngpus: 1", err: "sees nothing"},
		"refused, no reason":    {text: "phase: Refused", err: "phase Refused: state the reason"},
		"reason, runs":          {text: "gpus: 1\nreason: full", err: "only a Pending pod"},
		"bad pattern inside":    {text: "containers: {a: {mig: ['']}}", err: "containers.a: mig"},
		"two times one field":   {text: "gpus: 1\ngpus: 2", err: "already set"},
		"a number is not a log": {text: "log: 1", err: "cannot unmarshal number"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.text)
			switch {
			case test.err == "" && err != nil:
				t.Fatal(err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Fatalf("error: got %v, want one with %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("expectation (-want +got):\n%s", diff)
			}
		})
	}
}
