package vfio

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakevfio"
)

const (
	display = "0000:01:00.0"
	h100    = "0000:17:00.0"
)

func TestBindAndUnbind(t *testing.T) {
	k := fakevfio.Card()
	before := k.State()
	b := New(k, k, k)
	group, err := b.Bind(t.Context(), display)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Group{ID: "7", Devices: []string{"0000:01:00.1", display}}, group); diff != "" {
		t.Errorf("group (-want +got):\n%s", diff)
	}
	want := map[string]string{"0000:00:01.0": "pcieport/", display: "vfio-pci/vfio-pci", "0000:01:00.1": "vfio-pci/vfio-pci", h100: "/"}
	if diff := cmp.Diff(want, k.State()); diff != "" {
		t.Errorf("bound (-want +got):\n%s", diff)
	}
	order := []string{
		"0000:01:00.1/driver_override=vfio-pci", "snd_hda_intel/unbind=0000:01:00.1", "pci/drivers_probe=0000:01:00.1",
		"0000:01:00.0/driver_override=vfio-pci", "nouveau/unbind=0000:01:00.0", "pci/drivers_probe=0000:01:00.0",
	}
	if diff := cmp.Diff(order, k.Writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	k.Writes = nil
	if _, err := b.Bind(t.Context(), display); err != nil || len(k.Writes) != 0 {
		t.Errorf("bound already: writes %v, error %v", k.Writes, err)
	}
	if bound, err := b.Bound(display); err != nil || !bound {
		t.Errorf("bound %t, error %v", bound, err)
	}
	if err := b.Unbind(t.Context(), display); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, k.State()); diff != "" {
		t.Errorf("unbound (-want +got):\n%s", diff)
	}
	if bound, err := b.Bound(display); err != nil || bound {
		t.Errorf("bound %t, error %v", bound, err)
	}
}

func TestBindWithoutAnyDriver(t *testing.T) {
	k := fakevfio.Card()
	b := New(k, k, k)
	if group, err := b.Bind(t.Context(), h100); err != nil || group.ID != "31" || k.Devices[h100].Driver != "vfio-pci" {
		t.Fatalf("group %v, state %v, error %v", group, k.State(), err)
	}
	if err := b.Unbind(t.Context(), h100); err != nil || k.State()[h100] != "/" {
		t.Errorf("state %v, error %v", k.State(), err)
	}
}

// Devices that cannot be bound, and are unchanged afterwards.
func TestBindFails(t *testing.T) {
	tests := map[string]struct {
		change  func(*fakevfio.Kernel)
		is      error
		message string
	}{
		"the IOMMU is off":          {func(k *fakevfio.Kernel) { k.Devices[display].Group = "" }, ErrNoIOMMU, "intel_iommu=on"},
		"no module":                 {func(k *fakevfio.Kernel) { delete(k.Takes, "vfio-pci"); k.Loadable = nil }, ErrNoModule, "not found"},
		"another card in the group": {func(k *fakevfio.Kernel) { k.Devices[h100].Group = "7" }, ErrShared, h100},
		"NVIDIA's driver is used": {func(k *fakevfio.Kernel) {
			k.Devices[display].Driver, k.Refs = "nvidia", "3"
			k.Takes["nvidia"], k.Takes["nouveau"] = []string{display}, nil
		}, gpu.ErrBusy, "3 users"},
		"the driver refuses the probe": {func(k *fakevfio.Kernel) { k.Refuses["vfio-pci"] = true }, nil, "dmesg"},
		"the override is stuck":        {func(k *fakevfio.Kernel) { k.Stuck[display] = true }, nil, "still"},
		"the group's node is missing":  {func(k *fakevfio.Kernel) { k.Withheld["7"] = true }, fs.ErrNotExist, "node"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := fakevfio.Card()
			test.change(k)
			before := k.State()
			_, err := New(k, k, k).Bind(t.Context(), display)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.message) {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(before, k.State()); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

// NVIDIA's driver releases a GPU that is not in use.
func TestBindFromNVIDIA(t *testing.T) {
	k := fakevfio.Card()
	k.Devices[h100].Driver, k.Takes["nvidia"], k.Refs = "nvidia", []string{h100}, "0"
	b := New(k, k, k)
	if _, err := b.Bind(t.Context(), h100); err != nil {
		t.Fatal(err)
	}
	if err := b.Unbind(t.Context(), h100); err != nil || k.Devices[h100].Driver != "nvidia" {
		t.Errorf("state %v, error %v", k.State(), err)
	}
}

// The module is loaded when it is needed.
func TestBindLoadsTheModule(t *testing.T) {
	k := fakevfio.Card()
	delete(k.Takes, "vfio-pci")
	if _, err := New(k, k, k).Bind(t.Context(), h100); err != nil || k.Devices[h100].Driver != "vfio-pci" {
		t.Errorf("state %v, error %v", k.State(), err)
	}
}

func TestModprobe(t *testing.T) {
	if err := Modprobe("/").Load(t.Context(), "no-such-module-of-any-kernel"); err == nil {
		t.Error("a module that does not exist was loaded")
	}
	if err := Modprobe(t.TempDir()).Load(t.Context(), "vfio-pci"); err == nil {
		t.Error("a host without modprobe loaded a module")
	}
}

func TestUnbindBusy(t *testing.T) {
	k := fakevfio.Card()
	b := New(k, k, k)
	if _, err := b.Bind(t.Context(), display); err != nil {
		t.Fatal(err)
	}
	k.Open["7"], k.Writes = true, nil
	bound := k.State()
	if err := b.Unbind(t.Context(), display); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(bound, k.State()); diff != "" || len(k.Writes) != 0 {
		t.Errorf("writes %v, state (-want +got):\n%s", k.Writes, diff)
	}
	// A virtual machine has it already, and the claim is prepared again.
	if _, err := b.Bind(t.Context(), display); err != nil {
		t.Errorf("bind again while it is used: %v", err)
	}
	k.Open["7"] = false
	if err := b.Unbind(t.Context(), display); err != nil || k.State()[display] != "nouveau/" {
		t.Errorf("state %v, error %v", k.State(), err)
	}
}

// A use that starts between the check and the write: the kernel blocks, the call waits until ctx ends, and the next
// attempt completes it.
func TestUnbindRaced(t *testing.T) {
	k := fakevfio.Card()
	if _, err := New(k, k, k).Bind(t.Context(), h100); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := New(k, racing{k}, k).Unbind(ctx, h100); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	k.Open["31"] = false
	if err := New(k, k, k).Unbind(t.Context(), h100); err != nil || k.State()[h100] != "/" {
		t.Errorf("state %v, error %v", k.State(), err)
	}
}

// racing has a process open the group just after the check.
type racing struct{ *fakevfio.Kernel }

func (r racing) Check(group string) error {
	err := r.Kernel.Check(group)
	r.Open[group] = true
	return err
}

// Every write fails once: a failed Bind restores the previous state.
func TestBindUndoesEveryFailure(t *testing.T) {
	for n := 1; ; n++ {
		k := fakevfio.Card()
		before := k.State()
		k.Faults[n] = unix.EIO
		_, err := New(k, k, k).Bind(t.Context(), display)
		if err == nil {
			if n != 7 {
				t.Errorf("Bind succeeded although write %d failed", n)
			}
			return
		}
		if !errors.Is(err, unix.EIO) {
			t.Errorf("write %d: error %v", n, err)
		}
		if diff := cmp.Diff(before, k.State()); diff != "" {
			t.Errorf("after write %d failed (-want +got):\n%s", n, diff)
		}
	}
}

// The error names what cannot be restored.
func TestBindReportsWhatIsNotUndone(t *testing.T) {
	k := fakevfio.Card()
	k.Refuses["vfio-pci"], k.Refuses["nouveau"] = true, true
	_, err := New(k, k, k).Bind(t.Context(), display)
	if err == nil || !strings.Contains(err.Error(), "its driver was \"snd_hda_intel\"") && !strings.Contains(err.Error(), "dmesg") {
		t.Fatalf("error %v", err)
	}
	k = fakevfio.Card()
	k.Refuses["vfio-pci"] = true
	k.Refuses["snd_hda_intel"] = true
	if _, err = New(k, k, k).Bind(t.Context(), display); err == nil || !strings.Contains(err.Error(), `its driver was "snd_hda_intel" and is ""`) {
		t.Errorf("error %v", err)
	}
}

// The process ends at every write, before it and, as the next process finds it, after the one before: Bind and Unbind
// both succeed from there.
func TestCrashes(t *testing.T) {
	for _, during := range []string{"Bind", "Unbind"} {
		for n := 1; n <= 6; n++ {
			for _, then := range []string{"Bind", "Unbind"} {
				k := fakevfio.Card()
				before := k.State()
				b := New(k, k, k)
				if during == "Unbind" {
					if _, err := b.Bind(t.Context(), display); err != nil {
						t.Fatal(err)
					}
					k.Writes = nil
				}
				k.Faults[n] = fakevfio.ErrCrash
				if err := call(t, b, during); !errors.Is(err, fakevfio.ErrCrash) {
					t.Fatalf("%s, write %d: error %v", during, n, err)
				}
				k.Revive()
				if err := call(t, b, then); err != nil {
					t.Errorf("%s crashed at write %d, then %s: %v", during, n, then, err)
				}
				want := before
				if then == "Bind" {
					want = map[string]string{"0000:00:01.0": "pcieport/", display: "vfio-pci/vfio-pci", "0000:01:00.1": "vfio-pci/vfio-pci", h100: "/"}
				}
				if diff := cmp.Diff(want, k.State()); diff != "" {
					t.Errorf("%s crashed at write %d, then %s (-want +got):\n%s", during, n, then, diff)
				}
			}
		}
	}
}

func call(t *testing.T, b *Binder, name string) error {
	t.Helper()
	if name == "Unbind" {
		return b.Unbind(t.Context(), display)
	}
	_, err := b.Bind(t.Context(), display)
	return err
}

// The real files.
func TestFolder(t *testing.T) {
	root := t.TempDir()
	device := filepath.Join(root, "bus/pci/devices", h100)
	if err := os.MkdirAll(device, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(device, "driver_override"), []byte("(null)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../../kernel/iommu_groups/31", filepath.Join(device, "iommu_group")); err != nil {
		t.Fatal(err)
	}
	f := Folder(root)
	const file = "bus/pci/devices/" + h100 + "/driver_override"
	if text, err := f.Read(file); err != nil || text != "(null)" {
		t.Errorf("read %q, error %v", text, err)
	}
	if err := f.Write(t.Context(), file, "vfio-pci"); err != nil {
		t.Error(err)
	}
	if text, err := f.Read(file); err != nil || !strings.HasPrefix(text, "vfio-pci") {
		t.Errorf("read %q, error %v", text, err)
	}
	if id, err := f.Link("bus/pci/devices/" + h100 + "/iommu_group"); err != nil || id != "31" {
		t.Errorf("link %q, error %v", id, err)
	}
	if names, err := f.List("bus/pci/devices"); err != nil || len(names) != 1 {
		t.Errorf("list %v, error %v", names, err)
	}
	for name, err := range map[string]error{
		"write": f.Write(t.Context(), "bus/pci/drivers_probe", h100), "list": second(f.List("none")), "link": second(f.Link("none")), "read": second(f.Read("none")),
		"node": Dev(root).Check("31"),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of what does not exist: %v", name, err)
		}
	}
	// A write that blocks in the kernel.
	if err := unix.Mkfifo(filepath.Join(root, "slow"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := f.Write(ctx, "slow", "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write without an answer: %v", err)
	}
	reader, err := os.OpenFile(filepath.Join(root, "slow"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := os.MkdirAll(filepath.Join(root, "dev/vfio"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "dev/vfio/31"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Dev(root).Check("31"); err != nil {
		t.Errorf("a node that is there: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
