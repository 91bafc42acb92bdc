package nvml

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// pciFunction is one entry of a made-up sysfs.
type pciFunction struct{ address, parent, vendor, class, numa string }

func fakeSysfs(t *testing.T, functions ...pciFunction) sysfs {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range functions {
		folder := filepath.Join("devices", f.parent, f.address)
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"vendor": f.vendor, "device": "0x2330", "class": f.class, "numa_node": f.numa} {
			if err := os.WriteFile(filepath.Join(root, folder, name), []byte(value+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Join("../../..", folder), filepath.Join(root, "bus/pci/devices", f.address)); err != nil {
			t.Fatal(err)
		}
	}
	return sysfs(root)
}

func TestSysfs(t *testing.T) {
	s := fakeSysfs(t,
		pciFunction{"0000:3b:00.0", "pci0000:3a/0000:3a:00.0", "0x10de", "0x030200", "1"},
		pciFunction{"0000:1b:00.0", "pci0000:1a", "0x10de", "0x030000", "-1"},
		pciFunction{"0000:1b:00.1", "pci0000:1a", "0x10de", "0x040300", "-1"},
		pciFunction{"0000:02:00.0", "pci0000:00", "0x1a03", "0x030000", "0"},
		pciFunction{"0000:f7:00.0", "pci0000:f0", "0x10de", "0x068000", "0"},
	)
	if diff := cmp.Diff([]string{"0000:1b:00.0", "0000:3b:00.0"}, s.gpus()); diff != "" {
		t.Errorf("NVIDIA's display functions (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{"gpu-0000-3b-00-0": true, "gpu-0000-99-00-0": false, "gpu-0000-02-00-0": false} {
		if s.present(name) != want {
			t.Errorf("%s is there: %t", name, !want)
		}
	}
	if !sysfs("/dev/null").present("gpu-0000-3b-00-0") {
		t.Error("a bus that cannot be read has lost its GPUs")
	}
	tests := map[string]struct {
		numa int
		root string
	}{
		"0000:3b:00.0": {1, "pci0000:3a"},
		"0000:1b:00.0": {-1, "pci0000:1a"},
		"0000:99:00.0": {-1, ""},
	}
	for address, want := range tests {
		if got := s.numa(address); got != want.numa {
			t.Errorf("%s: NUMA node %d, want %d", address, got, want.numa)
		}
		if got := s.root(address); got != want.root {
			t.Errorf("%s: root %q, want %q", address, got, want.root)
		}
	}
	if got := sysfs(t.TempDir()).gpus(); got != nil {
		t.Errorf("a machine without PCI: got %v", got)
	}
}

func TestAssignAddresses(t *testing.T) {
	display := func(address string) pciFunction {
		return pciFunction{address, "pci0000:00", "0x10de", "0x030200", "0"}
	}
	s := &Session{sysfs: fakeSysfs(t, display("0000:01:00.0"), display("0000:02:00.0"), display("0000:03:00.0"))}
	tests := map[string]struct{ given, want []string }{
		"all answer":             {[]string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"}, []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"}},
		"one in the middle":      {[]string{"0000:01:00.0", "", "0000:03:00.0"}, []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"}},
		"two":                    {[]string{"", "0000:02:00.0", ""}, []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"}},
		"the bus does not agree": {[]string{"", "0000:02:00.0"}, []string{"", "0000:02:00.0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gpus := make([]gpu.GPU, len(test.given))
			for i, address := range test.given {
				gpus[i].PCI = address
			}
			s.assignAddresses(gpus)
			for i, want := range test.want {
				if gpus[i].PCI != want {
					t.Errorf("GPU %d: got %q, want %q", i, gpus[i].PCI, want)
				}
			}
		})
	}
}
