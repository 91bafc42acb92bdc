package wire_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// noon is when the faults of these tests begin; it is not a whole second.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 987654321, time.FixedZone("", 3600))

// faults are those of a GPU that is hot, whose memory slices 4 and 5 have uncorrected errors, and on whose memory slice 6 a
// program failed.
func faults() []gpu.Fault {
	return []gpu.Fault{
		{Signal: gpu.SignalHeat, Severity: gpu.Warning, Since: noon},
		{Signal: gpu.SignalXID, XID: 13, Severity: gpu.Harmless, Since: noon},
		{Signal: gpu.SignalXID, XID: 48, Severity: gpu.Fatal, Since: noon.Add(time.Minute), Placement: gpu.Placement{Profile: 14, Start: 4, Size: 2}},
		{Signal: gpu.SignalXID, XID: 95, Severity: gpu.Fatal, Since: noon.Add(2 * time.Minute), Placement: gpu.Placement{Profile: 14, Start: 4, Size: 2}},
		{Signal: gpu.SignalXID, XID: 94, Severity: gpu.Critical, Since: noon, Placement: gpu.Placement{Profile: 19, Start: 6, Size: 1}},
		{Signal: gpu.SignalECC, Severity: gpu.Critical, Since: noon, Over: noon},
		{Signal: gpu.SignalRemapPending, Severity: gpu.Critical, Since: noon.Add(3 * time.Minute), Placement: gpu.Placement{Profile: 19, Start: 5, Size: 1}},
	}
}

// line returns a taint as one line.
func line(t resourceapi.DeviceTaint) string {
	since := ""
	if t.TimeAdded != nil {
		since = " " + t.TimeAdded.Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("%s=%s:%s%s", t.Key, t.Value, t.Effect, since)
}

// lineup returns each taint as one line.
func lineup(taints []resourceapi.DeviceTaint) []string {
	var list []string
	for _, t := range taints {
		list = append(list, line(t))
	}
	return list
}

// TestTaints checks the taints of each device: one for each signal, for its worst fault, among equally severe ones the oldest.
func TestTaints(t *testing.T) {
	t.Parallel()
	const (
		heat  = "gpu.tessera.dev/heat=:None 2026-11-22T11:00:00Z"
		lost  = "gpu.tessera.dev/xid=48:NoSchedule 2026-11-22T11:01:00Z"
		evict = "gpu.tessera.dev/xid=48:NoExecute 2026-11-22T11:01:00Z"
		hit   = "gpu.tessera.dev/xid=94:NoSchedule 2026-11-22T11:00:00Z"
		row   = "gpu.tessera.dev/remap-pending=:NoSchedule 2026-11-22T11:03:00Z"
		held  = "gpu.tessera.dev/remediation=:NoSchedule"
		away  = "tessera.dev/maintenance=DriverSwap:NoSchedule"
	)
	tests := map[string]struct {
		faulty bool
		held   string
		// maintenance is that of the node.
		maintenance string
		evict       bool
		want        map[string][]string
	}{
		"well": {},
		"faulty": {faulty: true, want: map[string][]string{
			"": {lost, row, heat}, "-mps": {lost, row, heat}, "-timeshare": {lost, row, heat}, "-vfio": {lost, row, heat}, "-monitor": nil,
			"-mig-0-0": {lost, row, heat}, "-mig-9-4": {lost, row, heat}, "-mig-9-0": {heat}, "-mig-19-4": {lost, heat}, "-mig-19-5": {lost, row, heat},
			"-mig-19-6": {hit, heat}, "-mig-19-0": {heat},
		}},
		"evicting": {faulty: true, evict: true, want: map[string][]string{
			"": {evict, row, heat}, "-monitor": nil, "-mig-9-4": {evict, row, heat}, "-mig-19-4": {evict, heat}, "-mig-19-6": {hit, heat}, "-mig-19-0": {heat},
		}},
		"held": {held: "XID 79", want: map[string][]string{"": {held}, "-mig-19-0": {held}, "-mps": {held}, "-vfio": {held}, "-monitor": nil}},
		"faulty and held": {faulty: true, held: "XID 79", want: map[string][]string{
			"": {lost, row, heat, held}, "-mig-19-0": {heat, held}, "-monitor": nil,
		}},
		"under maintenance": {held: "XID 79", maintenance: "DriverSwap", want: map[string][]string{
			"": {held, away}, "-mig-19-0": {held, away}, "-mps": {held, away}, "-vfio": {held, away}, "-monitor": {away},
		}},
	}
	for name, test := range tests {
		node := gputest.Node(t, "h100x2")
		node.GPUs[0].IOMMUGroup, node.GPUs[1].IOMMUGroup = "1", "2"
		if test.faulty {
			node.GPUs[0].Faults = faults()
		}
		node.GPUs[0].Held, node.GPUs[0].Maintenance = test.held, test.maintenance
		o := offering(everyShape...)
		o.Evict = test.evict
		got := map[string][]string{}
		for _, d := range devices(encode(t, node, o)) {
			if suffix, first := cutName(d.Name, node.GPUs[0].Name()); first {
				got[suffix] = lineup(d.Taints)
			} else if len(d.Taints) > 0 {
				t.Errorf("%s: the other GPU's %s has %v", name, d.Name, lineup(d.Taints))
			}
		}
		for suffix, want := range test.want {
			if diff := cmp.Diff(want, got[suffix]); diff != "" {
				t.Errorf("%s: %q (-want +got):\n%s", name, suffix, diff)
			}
		}
		if test.want == nil && slices.ContainsFunc(devices(encode(t, node, o)), func(d resourceapi.Device) bool { return d.Taints != nil }) {
			t.Errorf("%s: tainted", name)
		}
	}
}

// cutName returns the part of the device's name after the name of the GPU.
func cutName(device, gpuName string) (suffix string, of bool) {
	if len(device) < len(gpuName) || device[:len(gpuName)] != gpuName {
		return "", false
	}
	return device[len(gpuName):], true
}

// TestTaintOrder checks that the order in which faults were detected has no effect, so that equal health is published equally.
func TestTaintOrder(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	node.GPUs[0].Faults = faults()
	want := encode(t, node, offering(everyShape...))
	rapid.Check(t, func(t *rapid.T) {
		node.GPUs[0].Faults = rapid.Permutation(faults()).Draw(t, "faults")
		got, err := wire.Encode(node, offering(everyShape...))
		if err != nil || !reflect.DeepEqual(want, got) {
			t.Fatalf("%v (-first +second):\n%s", err, cmp.Diff(want, got))
		}
	})
}

// TestTaintsRead checks that Read returns the published taints by device and by GPU, and that their signals are recognized.
func TestTaintsRead(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	node.GPUs[0].Faults, node.GPUs[0].Held = faults(), "XID 48"
	pool := encode(t, node, offering(everyShape...))
	for _, d := range devices(pool) {
		if d.Name == node.GPUs[0].Name() {
			d.Taints[0].TimeAdded = nil // a taint without a time is distinct from those with one
		}
	}
	r := wire.Read(list(node.Name, driver, pool))[0]
	published := map[string][]string{}
	for _, d := range devices(pool) {
		published[d.Name] = lineup(d.Taints)
	}
	for _, g := range r.GPUs {
		for _, d := range g.Devices {
			if diff := cmp.Diff(published[d.Name], lineup(d.Taints)); diff != "" {
				t.Errorf("%s (-published +read):\n%s", d.Name, diff)
			}
		}
	}
	var signals []string
	for _, taint := range r.GPUs[0].Taints {
		s, xid, ok := wire.TaintSignal(driver, taint)
		signals = append(signals, fmt.Sprintf("%s %d %v %s %v", s, xid, ok, taint.Effect, taint.TimeAdded != nil))
	}
	slices.Sort(signals)
	want := []string{
		" 0 false NoSchedule false", "heat 0 true None true", "remap-pending 0 true NoSchedule true", "xid 48 true NoSchedule false", "xid 48 true NoSchedule true", "xid 94 true NoSchedule true",
	}
	if diff := cmp.Diff(want, signals); diff != "" {
		t.Errorf("taints of the GPU, each once (-want +got):\n%s", diff)
	}
	if len(r.GPUs[1].Taints) > 0 {
		t.Errorf("the other GPU has %v", r.GPUs[1].Taints)
	}
}

func TestTaintSignal(t *testing.T) {
	t.Parallel()
	for _, s := range gpu.Signals() {
		if got, xid, ok := wire.TaintSignal(driver, resourceapi.DeviceTaint{Key: wire.TaintKey(driver, s), Value: "79"}); got != s || !ok || xid != map[bool]int{true: 79}[s == gpu.SignalXID] {
			t.Errorf("%s: %q, %d, %v", s, got, xid, ok)
		}
	}
	for _, strange := range []resourceapi.DeviceTaint{
		{Key: wire.RemedyKey(driver)}, {Key: "gpu.nvidia.com/xid", Value: "79"}, {Key: wire.TaintKey(driver, gpu.SignalXID), Value: "many"}, {Key: "xid", Value: "79"}, {Key: driver + "/"},
	} {
		if s, _, ok := wire.TaintSignal(driver, strange); ok {
			t.Errorf("%+v is %s", strange, s)
		}
	}
}

// TestMaintenanceKey checks that ResourceSlices and DeviceTaintRules have the same taint.
func TestMaintenanceKey(t *testing.T) {
	if wire.MaintenanceKey != v1alpha1.TaintMaintenance {
		t.Errorf("the key is %s in ResourceSlices and %s in DeviceTaintRules", wire.MaintenanceKey, v1alpha1.TaintMaintenance)
	}
}
