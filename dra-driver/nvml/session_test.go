package nvml

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fakegpu"
)

// nodeName is the node of every fake machine.
const nodeName = "node1"

// install lays down the fake machine and returns a closed session on it, and its folder.
func install(t *testing.T, spec fakegpu.Spec) (*Session, string) {
	t.Helper()
	dir := t.TempDir()
	if err := fakegpu.InstallDriver(t.Context(), dir, spec); err != nil {
		t.Fatal(err)
	}
	machine, err := gputest.FindMachine(spec.Machine)
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

func sysfsOf(t *testing.T, m gputest.Machine) sysfs {
	t.Helper()
	var functions []pciFunction
	for _, slot := range m.GPUs {
		functions = append(functions, pciFunction{slot.PCI, slot.Root, "0x10de", "0x030200", fmt.Sprint(slot.NUMA)})
	}
	return fakeSysfs(t, functions...)
}

// sameGeometry compares geometries by what they are made of.
var sameGeometry = cmp.Transformer("Profiles", func(g *gpu.Geometry) []gpu.Profile { return g.Profiles() })

func TestRead(t *testing.T) {
	machines, err := gputest.Machines()
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
					want.GPUs[i].Multiprocessors = 0 // not told while MIG is on
				}
			}
			if diff := cmp.Diff(want, got, sameGeometry); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
			for _, g := range got.GPUs[1:] {
				if g.Product == got.GPUs[0].Product && g.Geometry != got.GPUs[0].Geometry {
					t.Errorf("GPU %d has a geometry of its own", g.Index)
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
