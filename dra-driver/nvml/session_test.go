package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// nodeName is the node of every fake machine.
const nodeName = "node1"

// install creates the fake machine and returns a closed session on it, and its folder.
func install(t *testing.T, spec fakegpu.Spec) (*Session, string) {
	t.Helper()
	dir := t.TempDir()
	if err := fakegpu.InstallDriver(t.Context(), dir, spec); err != nil {
		t.Fatal(err)
	}
	machine, err := catalog.FindMachine(spec.Machine)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Library: func() (string, error) { return found(fakegpu.Library(dir)) }, SysRoot: string(sysfsOf(t, machine))})
	t.Cleanup(s.Close)
	return s, dir
}

// open is install and Reopen.
func open(t *testing.T, machine string) (*Session, string) {
	t.Helper()
	s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: machine})
	if err := s.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func found(path string) (string, error) {
	_, err := os.Stat(path)
	return path, err
}

func sysfsOf(t *testing.T, m catalog.Machine) sysfs {
	t.Helper()
	var functions []pciFunction
	for _, slot := range m.GPUs {
		functions = append(functions, pciFunction{slot.PCI, slot.Root, "0x10de", "0x030200", fmt.Sprint(slot.NUMA)})
	}
	return fakeSysfs(t, functions...)
}

// sameGeometry compares geometries by content.
var sameGeometry = cmp.Transformer("Profiles", func(g *gpu.Geometry) []gpu.Profile { return g.Profiles() })

func TestRead(t *testing.T) {
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		t.Run(m.Name, func(t *testing.T) {
			s, _ := open(t, m.Name)
			got, err := s.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := gputest.Node(t, m.Name)
			want.Name = ""
			for i, g := range want.GPUs {
				if g.Mode == gpu.ModeEnabled && !g.TogglesMIG() {
					want.GPUs[i].Multiprocessors = 0 // not reported while MIG is enabled
				}
			}
			if diff := cmp.Diff(want, got, sameGeometry); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
			for _, g := range got.GPUs[1:] {
				if g.Product == got.GPUs[0].Product && g.Geometry != got.GPUs[0].Geometry {
					t.Errorf("GPU %d has a separate geometry", g.Index)
				}
			}
		})
	}
}

func TestClosedSession(t *testing.T) {
	s := New(Config{Library: func() (string, error) { return "", os.ErrNotExist }, SysRoot: t.TempDir()})
	if got := s.Driver(); got != "" {
		t.Errorf("Driver: got %q, want none", got)
	}
	_, read := s.Read(t.Context())
	_, list := s.List(t.Context(), "gpu-0000-1b-00-0")
	for what, err := range map[string]error{"Reopen": s.Reopen(t.Context()), "Read": read, "List": list} {
		if !errors.Is(err, gpu.ErrNoDriver) {
			t.Errorf("%s: got %v, want no driver", what, err)
		}
	}
	s.Close()
}

// The driver is installed, replaced and removed while the session exists; the session reports it and can be reopened
// each time.
func TestDriverChanges(t *testing.T) {
	s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2"})
	want := gputest.Node(t, "h100x2")
	check := func(version string) {
		t.Helper()
		if err := s.Reopen(t.Context()); err != nil {
			t.Fatal(err)
		}
		node, err := s.Read(t.Context())
		if err != nil || node.DriverVersion != version || len(node.GPUs) != len(want.GPUs) || node.GPUs[1].UUID != want.GPUs[1].UUID {
			t.Fatalf("driver %s: got %+v, %v", version, node, err)
		}
		if _, err := s.List(t.Context(), want.GPUs[0].Name()); err != nil {
			t.Errorf("driver %s: List: %v", version, err)
		}
	}
	stale := func(when string) {
		t.Helper()
		if _, err := s.Read(t.Context()); !errors.Is(err, gpu.ErrNoDriver) {
			t.Errorf("%s: Read returns %v, want no driver", when, err)
		}
		if _, err := s.List(t.Context(), want.GPUs[0].Name()); !errors.Is(err, gpu.ErrNoDriver) {
			t.Errorf("%s: List returns %v, want no driver", when, err)
		}
	}
	fingerprints := map[string]bool{s.Driver(): true}
	check(catalog.DriverVersion)
	for _, version := range []string{"590.48.01", "535.183.06", "580.65.06"} {
		if err := fakegpu.SetDriverVersion(t.Context(), dir, version); err != nil {
			t.Fatal(err)
		}
		if driver := s.Driver(); driver == "" || fingerprints[driver] {
			t.Errorf("driver %s has the fingerprint of another: %q", version, driver)
		}
		fingerprints[s.Driver()] = true
		stale("after the change to " + version)
		check(version)
	}
	if err := fakegpu.RemoveDriver(dir); err != nil {
		t.Fatal(err)
	}
	stale("after the driver went")
	err := s.Reopen(t.Context())
	if s.Driver() != "" || !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), "2 NVIDIA GPUs") {
		t.Errorf("without a driver: fingerprint %q, Reopen returns %v", s.Driver(), err)
	}
	stale("without a driver")
	if err := fakegpu.RestoreDriver(dir); err != nil {
		t.Fatal(err)
	}
	check(catalog.DriverVersion)
}

// olderDrivers runs the test with a driver of every branch that lacks functions.
func olderDrivers(t *testing.T, machine string, test func(t *testing.T, s *Session, dir string)) {
	for _, version := range []string{"535.183.06", "550.163.01"} {
		t.Run(version, func(t *testing.T) {
			s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: machine, DriverVersion: version})
			must(t, s.Reopen(t.Context()))
			test(t, s, dir)
		})
	}
}

// Supported drivers that lack many functions: the node reads the same through them.
func TestOldDriver(t *testing.T) {
	olderDrivers(t, "h100x2", func(t *testing.T, s *Session, _ string) {
		got, err := s.Read(t.Context())
		must(t, err)
		if diff := cmp.Diff(gputest.Node(t, "h100x2").GPUs, got.GPUs, sameGeometry); diff != "" {
			t.Errorf("Read (-want +got):\n%s", diff)
		}
		g := partitionable(t, s)[0]
		carveAndDestroy(t, s, g, g.Geometry.Profiles()[0], g.Geometry.Placements(g.Geometry.Profiles()[0].ID)[0])
	})
}

// Drivers may not report the names of profiles while MIG is disabled.
func TestProfilesWithoutNames(t *testing.T) {
	s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2"})
	if err := fakegpu.Fail(dir, "nvmlDeviceGetGpuInstanceProfileInfoV", uint32(nvml.ERROR_NOT_SUPPORTED), fakegpu.Forever); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(gputest.Node(t, "h100x2").GPUs, got.GPUs, sameGeometry); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
}

func TestLostGPU(t *testing.T) {
	want := gputest.Node(t, "h100x2").GPUs
	t.Run("while the session is open", func(t *testing.T) {
		s, dir := open(t, "h100x2")
		if err := fakegpu.Lose(dir, 1); err != nil {
			t.Fatal(err)
		}
		got, err := s.Read(t.Context())
		if err != nil || got.GPUs[0].Lost || !got.GPUs[1].Lost || got.GPUs[1].UUID != want[1].UUID {
			t.Errorf("got %+v, %v, want the second GPU lost", got.GPUs, err)
		}
		if _, err := s.List(t.Context(), want[1].Name()); !errors.Is(err, gpu.ErrLost) {
			t.Errorf("List: got %v, want lost", err)
		}
		if err := fakegpu.Reset(dir); err != nil {
			t.Fatal(err)
		}
		if got, err = s.Read(t.Context()); err != nil || got.GPUs[1].Lost {
			t.Errorf("after the reset: got %+v, %v", got.GPUs, err)
		}
	})
	t.Run("since before the session", func(t *testing.T) {
		s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2"})
		if err := fakegpu.Lose(dir, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Reopen(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := s.Read(t.Context())
		if err != nil || !got.GPUs[0].Lost || got.GPUs[0].Name() != want[0].Name() || got.GPUs[1].Lost || got.GPUs[1].Index != 1 {
			t.Errorf("got %+v, %v, want the first GPU lost under its name", got.GPUs, err)
		}
		if err := fakegpu.Reset(dir); err != nil {
			t.Fatal(err)
		}
		got, err = s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.GPUs, sameGeometry); diff != "" {
			t.Errorf("after the reset (-want +got):\n%s", diff)
		}
	})
}

func TestLinkDown(t *testing.T) {
	s, dir := open(t, "h100x2")
	for _, link := range []int{0, 17} {
		if err := fakegpu.LinkDown(dir, 1, link); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Read(t.Context())
	if err != nil || got.GPUs[0].Links[1] != gpu.NVLinks(16) || got.GPUs[1].Links[0] != gpu.NVLinks(16) {
		t.Errorf("two of 18 links are down: got %v and %v, %v", got.GPUs[0].Links, got.GPUs[1].Links, err)
	}
}

// A call that fails once changes nothing in the result, while the session opens or after it.
func TestEveryReadCallFailsOnce(t *testing.T) {
	s, dir := open(t, "a30x4l40sx4")
	carve(t, s, partitionable(t, s)[0].Name(), at(14, 1, 1))
	want, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	functions := called(t, func() {
		if err := s.Reopen(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if len(functions) < 20 {
		t.Fatalf("the log of a clean run has only %v", functions)
	}
	for _, function := range functions {
		if err := fakegpu.Fail(dir, function, uint32(nvml.ERROR_UNKNOWN), 1); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(t.Context()); err != nil || cmp.Diff(want, got, sameGeometry) != "" {
			t.Errorf("%s fails in Read: %v (-want +got):\n%s", function, err, cmp.Diff(want, got, sameGeometry))
		}
		err := s.Reopen(t.Context())
		if err != nil {
			err = s.Reopen(t.Context())
		}
		if err != nil {
			t.Errorf("%s fails in Reopen: not open after a second one: %v", function, err)
		}
		if got, err := s.Read(t.Context()); err != nil || cmp.Diff(want, got, sameGeometry) != "" {
			t.Errorf("%s fails in Reopen, and Read returns %v (-want +got):\n%s", function, err, cmp.Diff(want, got, sameGeometry))
		}
		if err := fakegpu.Reset(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls in progress end before the connection changes, and later calls use the new one.
func TestReopenUnderLoad(t *testing.T) {
	s, dir := open(t, "h100x2")
	gpus := partitionable(t, s)
	node := gputest.Node(t, "h100x2")
	if err := s.SetMode(t.Context(), node.GPUs[1].Name(), gpu.ModeEnabled); err != nil {
		t.Fatal(err)
	}
	if err := fakegpu.Latency(dir, time.Millisecond, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var load sync.WaitGroup
	for _, g := range node.GPUs {
		load.Go(func() {
			for round := range 30 {
				p := gpus[0].Geometry.Placements(19)[round%7]
				made, err := s.Create(t.Context(), g.Name(), p)
				if err == nil {
					made, err = s.Complete(t.Context(), made)
				}
				if err == nil {
					err = s.Destroy(t.Context(), made)
				}
				if err != nil {
					t.Errorf("%s, round %d: %v", g.Name(), round, err)
				}
			}
		})
	}
	load.Go(func() {
		for range 30 {
			if _, err := s.Read(t.Context()); err != nil {
				t.Errorf("Read: %v", err)
			}
		}
	})
	for range 10 {
		if err := s.Reopen(t.Context()); err != nil {
			t.Errorf("Reopen: %v", err)
		}
	}
	load.Wait()
	for _, g := range node.GPUs {
		if left := list(t, s, g.Name()); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	}
}

func TestCancelledContext(t *testing.T) {
	s, _ := open(t, "h100x2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, read := s.Read(ctx)
	_, created := s.Create(ctx, gputest.Node(t, "h100x2").GPUs[0].Name(), at(19, 0, 1))
	for what, err := range map[string]error{"Read": read, "Create": created, "Reopen": s.Reopen(ctx)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want the context's error", what, err)
		}
	}
}

// BenchmarkRead measures the cost of the periodic read of the hardware.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	if err := fakegpu.InstallDriver(b.Context(), dir, fakegpu.Spec{Node: nodeName, Machine: "h100x8"}); err != nil {
		b.Fatal(err)
	}
	s := New(Config{Library: func() (string, error) { return found(fakegpu.Library(dir)) }, SysRoot: dir})
	defer s.Close()
	if err := s.Reopen(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// A GPU is usable without a fact that the driver cannot report, and lost only without those that identify it.
func TestFactsThatCannotBeRead(t *testing.T) {
	want := gputest.Node(t, "h100x8").GPUs[0]
	left := func(edit func(g *gpu.GPU)) gpu.GPU {
		g := want
		edit(&g)
		return g
	}
	for function, wanted := range map[string]gpu.GPU{
		"nvmlDeviceGetBrand":                            left(func(g *gpu.GPU) { g.Brand = "" }),
		"nvmlDeviceGetArchitecture":                     left(func(g *gpu.GPU) { g.Architecture = "" }),
		"nvmlDeviceGetNumGpuCores":                      want, // the largest profile has all multiprocessors
		"nvmlDeviceGetEccMode":                          left(func(g *gpu.GPU) { g.ECC = nil }),
		"nvmlDeviceGetGpuFabricInfoV":                   left(func(g *gpu.GPU) { g.Clique = "" }),
		"nvmlDeviceGetGpuInstanceProfileInfo":           left(func(g *gpu.GPU) { g.Geometry = nil }),
		"nvmlDeviceGetGpuInstancePossiblePlacements_v2": left(func(g *gpu.GPU) { g.Geometry = nil }),
		"nvmlDeviceGetMemoryInfo":                       left(func(g *gpu.GPU) { g.MemoryBytes, g.ShareableBytes = 0, 0 }),
		"nvmlDeviceGetMemoryInfo_v2":                    left(func(g *gpu.GPU) { g.ShareableBytes = 0 }),
		"nvmlDeviceGetNvLinkState":                      left(func(g *gpu.GPU) { g.Links = nil }),
		"nvmlDeviceGetUUID":                             {Lost: true},
		"nvmlDeviceGetMinorNumber":                      left(func(g *gpu.GPU) { g.Lost = true }),
		"nvmlDeviceGetMigMode":                          left(func(g *gpu.GPU) { g.Lost = true }),
	} {
		t.Run(function, func(t *testing.T) {
			s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x8"})
			if err := fakegpu.Fail(dir, function, uint32(nvml.ERROR_UNKNOWN), fakegpu.Forever); err != nil {
				t.Fatal(err)
			}
			if err := s.Reopen(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := read(t, s)
			if wanted.Links == nil && !slices.ContainsFunc(got.Links, func(l gpu.Link) bool { return l > gpu.LinkSelf }) {
				got.Links = nil // the relations on PCIe
			}
			if got.Lost != wanted.Lost {
				t.Fatalf("lost: %v, want %v", got.Lost, wanted.Lost)
			}
			if diff := cmp.Diff(wanted, got, sameGeometry); diff != "" && !wanted.Lost {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
			if err := fakegpu.Fail(dir, function, 0, 0); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, read(t, s), sameGeometry); diff != "" {
				t.Errorf("when it can be read again (-want +got):\n%s", diff)
			}
		})
	}
}

// read returns the first GPU.
func read(t *testing.T, s *Session) gpu.GPU {
	t.Helper()
	node, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return node.GPUs[0]
}

// Drivers report other sizes of MIG profiles while MIG is off. What is read after a change of the mode is what instances have.
func TestProfilesChangeWithTheMode(t *testing.T) {
	s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2"})
	if err := fakegpu.LargerProfiles(dir, 0, 1536, 2); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	off := read(t, s)
	on := gputest.Node(t, "h100x2").GPUs[0]
	p := on.Geometry.Profiles()[0]
	if before, has := off.Geometry.Profile(p.ID); !has || before.MemoryBytes != p.MemoryBytes+1536<<20 || before.Multiprocessors != p.Multiprocessors+2 {
		t.Fatalf("while MIG is off: %+v, want more memory and multiprocessors than %+v", before, p)
	}
	if err := s.SetMode(t.Context(), off.Name(), gpu.ModeEnabled); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func() (*gpu.Geometry, error){
		"Geometry": func() (*gpu.Geometry, error) { return s.Geometry(t.Context(), off.Name()) },
		"Read":     func() (*gpu.Geometry, error) { return read(t, s).Geometry, nil },
	} {
		if got, err := read(); err != nil || !cmp.Equal(got, on.Geometry, sameGeometry) {
			t.Errorf("%s after MIG was enabled: %v, %v, want the profiles of instances", what, got, err)
		}
	}
	// A profile that cannot be read takes no other away.
	const profile = "nvmlDeviceGetGpuInstanceProfileInfo"
	if err := fakegpu.Fail(dir, profile, uint32(nvml.ERROR_UNKNOWN), 1); err != nil {
		t.Fatal(err)
	}
	if err := s.SetMode(t.Context(), off.Name(), gpu.ModeDisabled); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Geometry(t.Context(), off.Name()); err != nil || !cmp.Equal(got, on.Geometry, sameGeometry) {
		t.Errorf("when a profile could not be read: %v, %v, want those of before", got, err)
	}
	if got := read(t, s).Geometry; !cmp.Equal(got, off.Geometry, sameGeometry) {
		t.Errorf("after MIG was disabled: %v", got)
	}
}
