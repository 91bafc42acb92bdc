package pci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// bus writes the functions of a PCI bus in the layout of sysfs, and returns its root.
func bus(t *testing.T, functions map[string]map[string]string) string {
	t.Helper()
	root := t.TempDir()
	links := filepath.Join(root, "bus/pci/devices")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	for address, files := range functions {
		folder := filepath.Join("devices/pci0000:16/0000:16:01.0", address)
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(root, folder, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Join("../../..", folder), filepath.Join(links, address)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func function(vendor, class, device, numa string) map[string]string {
	return map[string]string{"vendor": vendor, "class": class, "device": device, "numa_node": numa}
}

func TestRead(t *testing.T) {
	root := bus(t, map[string]map[string]string{
		"0000:2a:00.0": function("0x10de", "0x030200", "0xffff", "-1"),
		"0000:17:00.0": function("0x10de", "0x030200", "0x2330", "1"),
		"0000:17:00.1": function("0x10de", "0x040300", "0x1aef", "1"),
		"0000:03:00.0": function("0x8086", "0x030000", "0x4680", "0"),
	})
	b := New(root, func(address string) (string, error) {
		if address == "0000:17:00.0" {
			return "31", nil
		}
		return "", errors.New("the IOMMU is off")
	})
	if !b.Present("gpu-0000-17-00-0") || b.Present("gpu-0000-18-00-0") || !New("/dev/null", nil).Present("gpu-0000-17-00-0") {
		t.Error("which GPUs are there is not known")
	}
	if b.Driver() == "" {
		t.Fatal("a node for virtual machines waits for a driver")
	}
	got, err := b.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := gpu.Node{GPUs: []gpu.GPU{
		{PCI: "0000:17:00.0", Product: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", MemoryBytes: 81559 << 20, NUMA: 1, PCIeRoot: "pci0000:16", IOMMUGroup: "31",
			Mode: gpu.ModeUnsupported, Pending: gpu.ModeUnsupported},
		{PCI: "0000:2a:00.0", Index: 1, Product: "NVIDIA GPU ffff", NUMA: -1, PCIeRoot: "pci0000:16", Mode: gpu.ModeUnsupported, Pending: gpu.ModeUnsupported},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	// Only the GPU with its own group is offered, and only to virtual machines.
	devices := got.Devices(gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.VFIO, gpu.Monitor}, Shares: 2})
	if diff := cmp.Diff([]gpu.Device{{GPU: "gpu-0000-17-00-0", Use: gpu.Use{Shape: gpu.VFIO}}}, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestNoBus(t *testing.T) {
	if got, err := New(t.TempDir(), nil).Read(t.Context()); err != nil || len(got.GPUs) != 0 {
		t.Errorf("%+v, error %v", got, err)
	}
}

// The data of a model equals what its driver reports.
func TestModels(t *testing.T) {
	files, err := filepath.Glob("../../api/gpu/catalog/models/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no models: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		known, err := catalog.FindModel(name)
		if err != nil {
			t.Fatal(err)
		}
		id := uint32(known.PCIDevice) >> 16
		got := modelOf(fmt.Sprintf("%04x", id))
		if got.product != known.Product || got.architecture != known.Architecture || got.mebibytes != known.MemoryMiB {
			t.Errorf("%s (%s): %+v", name, fmt.Sprintf("%04x", id), got)
		}
	}
}

func TestRefuses(t *testing.T) {
	b := New(t.TempDir(), nil)
	_, created := b.Create(t.Context(), "gpu-x", gpu.Placement{})
	_, completed := b.Complete(t.Context(), gpu.Instance{})
	for name, err := range map[string]error{
		"create": created, "complete": completed,
		"apart": b.Disconnected(t.Context(), nil), "users": second(b.Users(t.Context(), "gpu-x")),
		"mode": b.SetMode(t.Context(), "gpu-x", gpu.ModeEnabled), "compute mode": b.SetComputeMode(t.Context(), "gpu-x", gpu.ComputeExclusive),
	} {
		if !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A GPU is lost if it is not on the bus, or on the bus and does not respond.
func TestCheck(t *testing.T) {
	with := func(config string) map[string]string {
		files := function("0x10de", "0x030200", "0x2330", "0")
		files["config"] = config
		return files
	}
	b := New(bus(t, map[string]map[string]string{
		"0000:17:00.0": with("\xde\x10\x30\x23"), "0000:18:00.0": with("\xff\xff\xff\xff"), "0000:19:00.0": function("0x10de", "0x030200", "0x2330", "0"),
	}), nil)
	for name, lost := range map[string]bool{"gpu-0000-17-00-0": false, "gpu-0000-18-00-0": true, "gpu-0000-19-00-0": false, "gpu-0000-20-00-0": true} {
		got, err := b.Check(t.Context(), name)
		want := gpu.Checkup{GPU: name}
		if !lost {
			want.Conditions = []gpu.Condition{{Signal: gpu.SignalLost}}
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(gpu.Checkup{}, "At")); diff != "" || got.At.IsZero() {
			t.Errorf("%s at %v (-want +got):\n%s", name, got.At, diff)
		}
		if (err != nil) != lost || lost && !errors.Is(err, gpu.ErrLost) {
			t.Errorf("%s: %v, want lost %t", name, err, lost)
		}
	}
	if _, err := New(t.TempDir(), nil).Check(t.Context(), "gpu-0000-17-00-0"); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("no bus: %v", err)
	}
}

func TestWatchEventsEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(t.TempDir(), nil).WatchEvents(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
