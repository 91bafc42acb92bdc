package pci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bus writes a sysfs with the functions' files and returns its root.
func bus(t *testing.T, functions map[string]map[string]string) Sysfs {
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
	return Sysfs(root)
}

func files(vendor, class, device string) map[string]string {
	return map[string]string{"vendor": vendor, "class": class, "device": device}
}

func TestGPUs(t *testing.T) {
	sys := bus(t, map[string]map[string]string{
		"0000:2a:00.0": files("0x10de", "0x030000", "0x26b9"),
		"0000:17:00.0": files("0x10de", "0x030200", "0x2330"),
		"0000:17:00.1": files("0x10de", "0x040300", "0x1aef"), // audio
		"0000:05:00.0": files("0x10de", "0x068000", "0x22a3"), // NVSwitch
		"0000:03:00.0": files("0x8086", "0x030000", "0x4680"), // another vendor
		"0000:30:00.0": {"vendor": "0x10de"},                  // being removed
		"0000:31:00.0": {},
	})
	got, err := sys.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	want := []Function{{Address: "0000:17:00.0", Device: "2330"}, {Address: "0000:2a:00.0", Device: "26b9", Display: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestGPUsWithoutBus(t *testing.T) {
	if got, err := Sysfs(t.TempDir()).GPUs(); len(got) != 0 || err != nil {
		t.Errorf("no bus: %v, %v", got, err)
	}
	if _, err := Sysfs(t.TempDir()).Addresses(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no bus: %v", err)
	}
	if _, err := Sysfs("/dev/null").GPUs(); err == nil {
		t.Error("a sysfs that cannot be read: no error")
	}
}

// TestGPUsReportsUnreadableAttributes puts a folder in an attribute's place, which no process can read as a file.
func TestGPUsReportsUnreadableAttributes(t *testing.T) {
	for _, name := range []string{"vendor", "class", "device"} {
		with := files("0x10de", "0x030200", "0x2330")
		delete(with, name)
		sys := bus(t, map[string]map[string]string{"0000:17:00.0": with})
		if err := os.Mkdir(filepath.Join(sys.folder("0000:17:00.0"), name), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := sys.GPUs(); err == nil {
			t.Errorf("%s cannot be read: no error", name)
		}
	}
}

func TestFunction(t *testing.T) {
	with := files("0x10de", "0x030200", "0x2330")
	with["config"] = "\xde\x10"
	sys := bus(t, map[string]map[string]string{"0000:17:00.0": with, "0000:18:00.0": {}, "0000:19:00.0": files("0x8086", "0", "0")})
	if got, err := sys.Addresses(); err != nil || len(got) != 3 || got[0] != "0000:17:00.0" {
		t.Errorf("addresses %v, %v", got, err)
	}
	if got := sys.Root("0000:17:00.0"); got != "pci0000:16" {
		t.Errorf("root %q", got)
	}
	if got := sys.Root("0000:20:00.0"); got != "" {
		t.Errorf("root of no function: %q", got)
	}
	if got, err := sys.Config("0000:17:00.0"); err != nil || got[0] != 0xde {
		t.Errorf("config %x, %v", got, err)
	}
	for address, want := range map[string]bool{"0000:17:00.0": true, "0000:18:00.0": true, "0000:19:00.0": false} {
		if got := sys.IsNVIDIA(address); got != want {
			t.Errorf("%s is NVIDIA's: %t, want %t", address, got, want)
		}
	}
	if err := os.Remove(filepath.Join(string(sys), "bus/pci/devices/0000:17:00.0")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../elsewhere", filepath.Join(string(sys), "bus/pci/devices/0000:17:00.0")); err != nil {
		t.Fatal(err)
	}
	if got := sys.Root("0000:17:00.0"); got != "" {
		t.Errorf("root on a platform that shows none: %q", got)
	}
}
