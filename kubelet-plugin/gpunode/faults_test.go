package gpunode

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// All stored faults in effect are reported, also of GPUs that the node does not have.
func TestFaults(t *testing.T) {
	began := time.Date(2026, 11, 22, 18, 0, 0, 5, time.UTC)
	const name = "gpu-gone"
	slice := gpu.Placement{Profile: 19, Start: 3, Size: 1}
	faults := []gpu.Fault{
		{GPU: name, Signal: gpu.SignalHeat, Severity: gpu.Warning, Since: began, Boot: "b"},
		{GPU: name, UUID: "GPU-1", Placement: slice, Signal: gpu.SignalXID, XID: 94, Severity: gpu.Critical, Remedy: gpu.Restart, Since: began, Last: began, Count: 1, Boot: "b"},
		{GPU: name, Signal: gpu.SignalXID, XID: 48, Severity: gpu.Critical, Since: began, Over: began},
		{GPU: name, Signal: gpu.SignalXID, XID: 31, Severity: gpu.Harmless, Since: began},
	}
	got := Faults(faults, gpu.Rules{})
	if len(got) != 2 || got[0].Device != name+"-mig-19-3" || got[0].XID != 94 || got[0].Severity != "Critical" || got[0].Remedy != "Restart" || got[0].Message == "" {
		t.Fatalf("%+v", got)
	}
	for i := range faults {
		f := &faults[i]
		f.Last, f.Count, f.Detail = began.Add(time.Hour), 100000, "100000 errors"
	}
	if diff := cmp.Diff(got, Faults(faults, gpu.Rules{})); diff != "" {
		t.Errorf("repeated events change the status (-before +after):\n%s", diff)
	}
	// Faults of the driver are not reported.
	for _, name := range []string{"gpu-a", name} {
		faults = append(faults, gpu.Fault{GPU: name, Signal: gpu.SignalDriver, Severity: gpu.Critical, Since: began})
		if diff := cmp.Diff(got, Faults(faults, gpu.Rules{})); diff != "" {
			t.Errorf("driver fault of %s (-before +after):\n%s", name, diff)
		}
	}
	for xid := range 100 {
		faults = append(faults, gpu.Fault{GPU: "gpu-x", Signal: gpu.SignalXID, XID: xid, Severity: gpu.Warning})
	}
	faults[len(faults)-1].Severity = gpu.Fatal
	if got := Faults(faults, gpu.Rules{}); len(got) != maxFaults || got[0].Severity != "Fatal" {
		t.Errorf("%d faults, the first %+v", len(got), got[0])
	}
}
