package nvml

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// symptoms are the conditions that are present, each as its signal with placement and number of links; told are all
// signals that were reported.
func symptoms(c gpu.Checkup) (there map[string]string, reported map[gpu.Signal]bool) {
	there, reported = map[string]string{}, map[gpu.Signal]bool{}
	for _, condition := range c.Conditions {
		reported[condition.Signal] = true
		if condition.Present {
			there[string(condition.Signal)+" "+condition.Placement.String()] = condition.Detail
		}
	}
	return there, reported
}

// links returns how many NVLinks are up, -2 if that was not reported.
func links(c gpu.Checkup) int {
	for _, condition := range c.Conditions {
		if condition.Signal == gpu.SignalNVLink {
			return condition.Links
		}
	}
	return -2
}

func check(t *testing.T, s *Session, name string) gpu.Checkup {
	t.Helper()
	before := time.Now()
	c, err := s.Check(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if c.GPU != name || c.At.Before(before) || c.At.After(time.Now()) {
		t.Errorf("Check of %s: %+v", name, c)
	}
	return c
}

func signals(list ...gpu.Signal) map[gpu.Signal]bool {
	set := map[gpu.Signal]bool{
		gpu.SignalLost: true, gpu.SignalHeat: true, gpu.SignalPower: true, gpu.SignalECC: true,
		gpu.SignalResetNeeded: true, gpu.SignalRebootNeeded: true, gpu.SignalRecovery: true,
	}
	for _, s := range list {
		set[s] = true
	}
	return set
}

// Only conditions that a GPU supports are reported; none is present on a healthy GPU.
func TestCheckHealthy(t *testing.T) {
	for machine, want := range map[string]map[gpu.Signal]bool{
		"h100x8": signals(gpu.SignalRemapPending, gpu.SignalRemapFailed, gpu.SignalNVLink, gpu.SignalFabric),
		"t4x1":   signals(gpu.SignalRetirePending),
	} {
		t.Run(machine, func(t *testing.T) {
			s, _ := open(t, machine)
			g := gputest.Node(t, machine).GPUs[0]
			c := check(t, s, g.Name())
			there, reported := symptoms(c)
			if diff := cmp.Diff(want, reported); diff != "" {
				t.Errorf("signals (-want +got):\n%s", diff)
			}
			if len(there) > 0 || c.UUID != g.UUID {
				t.Errorf("got %v of %s, want nothing of %s", there, c.UUID, g.UUID)
			}
		})
	}
}

func TestCheckFaults(t *testing.T) {
	s, dir := open(t, "h100x8")
	name := gputest.Node(t, "h100x8").GPUs[3].Name()
	check(t, s, name) // it has joined the fabric
	tests := map[string]struct {
		injure func() error
		want   map[string]string
		links  int
	}{
		"memory errors":  {func() error { return fakegpu.ECC(dir, 3, 9, 2) }, map[string]string{"ecc": "2 since the driver was loaded or the GPU reset"}, 18},
		"only corrected": {func() error { return fakegpu.ECC(dir, 3, 9, 0) }, nil, 18},
		"remap pending":  {func() error { return fakegpu.Remap(dir, 3, fakegpu.Remapping{Pending: true}) }, map[string]string{"remap-pending": ""}, 18},
		"remap failed":   {func() error { return fakegpu.Remap(dir, 3, fakegpu.Remapping{Failed: true}) }, map[string]string{"remap-failed": ""}, 18},
		"heat":           {func() error { return fakegpu.SlowDown(dir, 3, fakegpu.HeatBrake) }, map[string]string{"heat": ""}, 18},
		"power":          {func() error { return fakegpu.SlowDown(dir, 3, fakegpu.PowerBrake) }, map[string]string{"power": ""}, 18},
		"links":          {func() error { return errors.Join(fakegpu.LinkDown(dir, 3, 0), fakegpu.LinkDown(dir, 3, 17)) }, nil, 16},
		"fabric":         {func() error { return fakegpu.Fabric(dir, 3, fakegpu.FabricReport{State: fakegpu.FabricInProgress}) }, map[string]string{"fabric": "the GPU had joined the fabric and has not joined it again yet"}, 18},
		"bandwidth": {func() error {
			return fakegpu.Fabric(dir, 3, fakegpu.FabricReport{Health: fakegpu.FabricDegradedBandwidth})
		}, map[string]string{"fabric": "its bandwidth is degraded"}, 18},
		"another's": {func() error { return fakegpu.ECC(dir, 2, 0, 1) }, nil, 18},
	}
	for action, want := range map[uint32]map[string]string{
		1: {"reset-needed": ""}, 2: {"reboot-needed": ""}, 3: {"recovery": "the peers of the GPU must stop to use it"},
		4: {"reset-needed": "after the peers of the GPU have stopped to use it"}, 5: {"recovery": "the recovery of its IMEX domain"},
		6: {"reboot-needed": "a reset of its PCIe bus would do"}, 7: {"reboot-needed": "the whole system, not only a virtual machine"},
		8: {"recovery": "action 8, which this release of Tessera does not support"}, 1 << 31: {"recovery": "action 2147483648, which this release of Tessera does not support"},
	} {
		tests[fmt.Sprintf("recovery action %d", action)] = struct {
			injure func() error
			want   map[string]string
			links  int
		}{func() error { return fakegpu.RequireRecovery(dir, 3, action) }, want, 18}
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			must(t, fakegpu.Reset(dir))
			must(t, test.injure())
			c := check(t, s, name)
			there, _ := symptoms(c)
			want := map[string]string{}
			for signal, detail := range test.want {
				want[signal+" "+gpu.Placement{}.String()] = detail
			}
			if diff := cmp.Diff(want, there); diff != "" {
				t.Errorf("what is wrong (-want +got):\n%s", diff)
			}
			if got := links(c); got != test.links {
				t.Errorf("%d links, want %d", got, test.links)
			}
			must(t, fakegpu.Heal(dir, 3))
			if there, _ := symptoms(check(t, s, name)); len(there) > 0 {
				t.Errorf("cleared: %v", there)
			}
		})
	}
}

// A GPU that has never joined its NVLink fabric has no fault: one of a shared fabric does not before a partition is active. One that had joined has, also
// after the connection to the driver was replaced.
func TestFabricThatWasNeverJoined(t *testing.T) {
	s, dir := open(t, "h100x8")
	name := gputest.Node(t, "h100x8").GPUs[3].Name()
	report := func(state fakegpu.FabricState) string {
		t.Helper()
		must(t, fakegpu.Fabric(dir, 3, fakegpu.FabricReport{State: state}))
		there, reported := symptoms(check(t, s, name))
		switch detail, present := there["fabric "+gpu.Placement{}.String()]; {
		case present:
			return detail
		case reported[gpu.SignalFabric]:
			return "absent"
		}
		return "unknown"
	}
	for i, step := range []struct {
		state fakegpu.FabricState
		want  string
	}{
		{fakegpu.FabricNotStarted, "unknown"}, {fakegpu.FabricInProgress, "unknown"}, {fakegpu.FabricCompleted, "absent"},
		{fakegpu.FabricInProgress, "again yet"}, {fakegpu.FabricNotStarted, "started to join it again"}, {fakegpu.FabricCompleted, "absent"},
	} {
		if got := report(step.state); !strings.Contains(got, step.want) {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
	must(t, s.Reopen(t.Context()))
	if got := report(fakegpu.FabricInProgress); !strings.Contains(got, "again yet") {
		t.Errorf("after the driver was opened again: %q", got)
	}
}

func TestCheckRetirePending(t *testing.T) {
	s, dir := open(t, "t4x1")
	must(t, fakegpu.RetirePages(dir, 0, 1))
	there, _ := symptoms(check(t, s, gputest.Node(t, "t4x1").GPUs[0].Name()))
	if _, has := there["retire-pending "+gpu.Placement{}.String()]; !has || len(there) != 1 {
		t.Errorf("got %v", there)
	}
}

// In MIG mode memory errors are those of a MIG device, the other conditions are the GPU's, and NVLinks do not count.
func TestCheckMIG(t *testing.T) {
	s, dir := open(t, "h100x8")
	name := gputest.Node(t, "h100x8").GPUs[0].Name()
	must(t, s.SetMode(t.Context(), name, gpu.ModeEnabled))
	carve(t, s, name, gpu.Placement{Profile: 19, Start: 0, Size: 1})
	faulty := carve(t, s, name, gpu.Placement{Profile: 9, Start: 4, Size: 4})
	must(t, fakegpu.InstanceECC(dir, fakegpu.Place{GPU: 0, Instance: faulty.GI, Compute: fakegpu.Whole}, 3))
	must(t, fakegpu.Remap(dir, 0, fakegpu.Remapping{Pending: true}))
	must(t, fakegpu.LinkDown(dir, 0, 1))
	// nvml.h: not supported while there are MIG devices.
	must(t, fakegpu.Fail(dir, "nvmlDeviceGetRemappedRows", uint32(nvml.ERROR_NOT_SUPPORTED), fakegpu.Forever))
	seen := check(t, s, name)
	if got := links(seen); got != gpu.LinksUnused {
		t.Errorf("%d links are up, want that they have no effect", got)
	}
	there, reported := symptoms(seen)
	want := map[string]string{
		"ecc " + faulty.Placement.String():          "3 since the driver was loaded or the GPU reset",
		"remap-pending " + gpu.Placement{}.String(): "",
	}
	if diff := cmp.Diff(want, there); diff != "" {
		t.Errorf("what is wrong (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(signals(gpu.SignalRemapPending, gpu.SignalRemapFailed, gpu.SignalFabric, gpu.SignalNVLink), reported); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
}

func TestCheckFailingCalls(t *testing.T) {
	s, dir := open(t, "h100x2")
	gpus := gputest.Node(t, "h100x2").GPUs
	first, second := gpus[0].Name(), gpus[1].Name()
	refused := func(what, name string, want error) {
		t.Helper()
		c, err := s.Check(t.Context(), name)
		if !errors.Is(err, want) || len(c.Conditions) > 0 || c.UUID != "" || c.GPU != name {
			t.Errorf("%s: %+v, %v, want %v", what, c, err, want)
		}
	}
	must(t, fakegpu.Lose(dir, 1))
	refused("fallen off the bus", second, gpu.ErrLost)
	check(t, s, first)
	must(t, fakegpu.Find(dir, 1))
	check(t, s, second)
	must(t, fakegpu.RequireReset(dir, 1))
	refused("waits for a reset", second, gpu.ErrLost)
	must(t, fakegpu.Reset(dir))

	must(t, fakegpu.Fail(dir, "nvmlDeviceGetTotalEccErrors", uint32(nvml.ERROR_UNKNOWN), fakegpu.Forever))
	if _, reported := symptoms(check(t, s, first)); reported[gpu.SignalECC] || !reported[gpu.SignalHeat] || !reported[gpu.SignalLost] {
		t.Errorf("one query fails: reported %v, want all but ECC", reported)
	}
	for _, call := range []string{
		"nvmlDeviceGetMigMode", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetNvLinkState",
		"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetFieldValues",
	} {
		must(t, fakegpu.Fail(dir, call, uint32(nvml.ERROR_UNKNOWN), fakegpu.Forever))
	}
	refused("every question fails", first, gpu.ErrLost)
	must(t, fakegpu.Reset(dir))

	refused("no such GPU", "gpu-nowhere", gpu.ErrLost)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Check(ctx, first); !errors.Is(err, context.Canceled) {
		t.Errorf("no time: %v", err)
	}
	must(t, fakegpu.RemoveDriver(dir))
	refused("the driver is gone", first, gpu.ErrNoDriver)
	s.Close()
	refused("closed", first, gpu.ErrNoDriver)
}

// A driver that lacks newer functions is queried with the older ones, or with fewer.
func TestCheckOldDriver(t *testing.T) {
	olderDrivers(t, "h100x8", func(t *testing.T, s *Session, dir string) {
		must(t, fakegpu.SlowDown(dir, 0, fakegpu.HeatBrake))
		must(t, fakegpu.ECC(dir, 0, 0, 1))
		there, _ := symptoms(check(t, s, gputest.Node(t, "h100x8").GPUs[0].Name()))
		if len(there) != 2 {
			t.Errorf("got %v, want heat and memory errors", there)
		}
	})
}

// Check releases the connection between its queries.
func TestCheckLetsReopenIn(t *testing.T) {
	s, dir := open(t, "h100x8")
	must(t, fakegpu.Slow(dir, "nvmlDeviceGetTotalEccErrors", 50*time.Millisecond))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Check(t.Context(), gputest.Node(t, "h100x8").GPUs[0].Name())
		ended <- err
	}()
	must(t, s.Reopen(t.Context()))
	if err := <-ended; err != nil && !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("got %v, want none or no driver", err)
	}
}

func TestDescribeFabricError(t *testing.T) {
	const completed = nvml.GPU_FABRIC_STATE_COMPLETED
	tests := map[string]struct {
		info nvml.GpuFabricInfo_v2
		want string
	}{
		"well":           {nvml.GpuFabricInfo_v2{State: completed, HealthMask: 0xaa}, ""},
		"nothing known":  {nvml.GpuFabricInfo_v2{State: completed}, ""},
		"no partition":   {nvml.GpuFabricInfo_v2{State: completed, HealthMask: nvml.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NO_PARTITION << 8}, ""},
		"not started":    {nvml.GpuFabricInfo_v2{State: nvml.GPU_FABRIC_STATE_NOT_STARTED}, "started"},
		"refused":        {nvml.GpuFabricInfo_v2{State: completed, Status: uint32(nvml.ERROR_UNKNOWN)}, "999"},
		"route":          {nvml.GpuFabricInfo_v2{State: completed, HealthMask: 1 << 4}, "not healthy"},
		"recovery":       {nvml.GpuFabricInfo_v2{State: completed, HealthMask: 1 << 2}, "recovered"},
		"access timeout": {nvml.GpuFabricInfo_v2{State: completed, HealthMask: 1 << 6}, "timed out"},
	}
	for what, test := range tests {
		got := describeFabricError(test.info)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want something with %q", what, got, test.want)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	dir := b.TempDir()
	if err := fakegpu.InstallDriver(b.Context(), dir, fakegpu.Spec{Node: nodeName, Machine: "h100x8"}); err != nil {
		b.Fatal(err)
	}
	s := New(Config{Library: func() (string, error) { return fakegpu.Library(dir), nil }, SysRoot: b.TempDir()})
	defer s.Close()
	if err := s.Reopen(b.Context()); err != nil {
		b.Fatal(err)
	}
	node, err := s.Read(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	name := node.GPUs[0].Name()
	for b.Loop() {
		if _, err := s.Check(b.Context(), name); err != nil {
			b.Fatal(err)
		}
	}
}
