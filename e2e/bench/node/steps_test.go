package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMeans(t *testing.T) {
	metrics := `# TYPE tessera_prepare_step_duration_seconds histogram
tessera_prepare_step_duration_seconds_bucket{step="write-spec",le="0.0001"} 1
tessera_prepare_step_duration_seconds_sum{step="write-spec"} 0.004
tessera_prepare_step_duration_seconds_count{step="write-spec"} 8
tessera_prepare_step_duration_seconds_sum{step="delete-record"} 1e-03
tessera_prepare_step_duration_seconds_count{step="delete-record"} 1
tessera_gpus 8
`
	if diff := cmp.Diff([]string{"delete-record 1.00", "write-spec 0.50"}, means(metrics)); diff != "" {
		t.Errorf("means (-want +got):\n%s", diff)
	}
}
