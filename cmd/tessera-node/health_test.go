package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/health"
	"github.com/tessera-gpu/tessera/dra-driver/inventory"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
)

// Faults in effect are told of, by GPU and kind, by the agent that speaks for the node.
func TestFaultMetrics(t *testing.T) {
	store, err := checkpoint.OpenHealth(nil, t.TempDir(), func(path string, err error) { t.Errorf("%s: %v", path, err) })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var remembered gpu.Health
	for _, e := range []gpu.Event{
		{GPU: "gpu-0", XID: 79, At: now},
		{GPU: "gpu-0", XID: 13, At: now},
		{GPU: "gpu-1", XID: 94, Placement: gpu.Placement{Profile: 19, Start: 0, Size: 1}, At: now},
		{GPU: "gpu-1", XID: 94, Placement: gpu.Placement{Profile: 19, Start: 1, Size: 1}, At: now},
	} {
		remembered = remembered.Note(gpu.Rules{}, e, "boot")
	}
	if _, err := store.SaveHealth(remembered, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	leads := true
	monitor, err := health.New(t.Context(), health.Config{
		Store: store, Inventory: &inventory.Inventory{}, Report: func([]gpu.Fault) {}, Boot: "boot", Leads: func() bool { return leads },
	})
	if err != nil {
		t.Fatal(err)
	}
	metrics := faults{monitor: monitor, leads: func() bool { return leads }}
	want := `
# HELP tessera_gpu_faults Current faults of the GPU and its MIG devices with severity Warning or worse.
# TYPE tessera_gpu_faults gauge
tessera_gpu_faults{gpu="gpu-0",severity="Fatal",signal="xid",xid="79"} 1
tessera_gpu_faults{gpu="gpu-1",severity="Critical",signal="xid",xid="94"} 2
`
	if err := testutil.CollectAndCompare(metrics, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	leads = false
	if n := testutil.CollectAndCount(metrics); n != 0 {
		t.Errorf("an agent that does not lead reports %d", n)
	}
}
