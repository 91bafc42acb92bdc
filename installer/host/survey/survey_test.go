package survey

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/internal/host/pci"
)

// tree writes files by path, and links where the text begins with "-> ".
func tree(t *testing.T, files map[string]string) host.Roots {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if len(text) > 3 && text[:3] == "-> " {
			if err := os.Symlink(text[3:], path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return host.Roots{Host: root, Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Dev: root, Driver: "/run/nvidia/driver"}
}

func TestOS(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  System
		fails bool
	}{
		"ubuntu": {files: map[string]string{"etc/os-release": "NAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nID=ubuntu\nID_LIKE=debian\nPRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n"},
			want: System{"ubuntu24.04", "Ubuntu 24.04.1 LTS"}},
		"debian, single quotes":           {files: map[string]string{"etc/os-release": "ID=debian\nVERSION_ID='12'\nNAME=Debian\n"}, want: System{"debian12", "Debian 12"}},
		"rhel 9 has its minor":            {files: map[string]string{"etc/os-release": "ID=\"rhel\"\nVERSION_ID=\"9.4\"\nPRETTY_NAME=\"RHEL 9.4\"\n"}, want: System{"rhel9.4", "RHEL 9.4"}},
		"rhel 10 has not":                 {files: map[string]string{"etc/os-release": "ID=\"rhel\"\nVERSION_ID=\"10.1\"\nPRETTY_NAME=R\n"}, want: System{"rhel10", "R"}},
		"rocky has not":                   {files: map[string]string{"etc/os-release": "ID=rocky\nVERSION_ID=9.5\nPRETTY_NAME=R\n"}, want: System{"rocky9", "R"}},
		"a link as the host means it":     {files: map[string]string{"etc/os-release": "-> ../usr/lib/os-release", "usr/lib/os-release": "ID=sles\nVERSION_ID=15.6\nPRETTY_NAME=S\n"}, want: System{"sles15.6", "S"}},
		"only below usr":                  {files: map[string]string{"usr/lib/os-release": "ID=amzn\nVERSION_ID=2023\nPRETTY_NAME=A\n"}, want: System{"amzn2023", "A"}},
		"a rolling one has no version":    {files: map[string]string{"etc/os-release": "# a comment\nID=arch\nPRETTY_NAME=\"Arch Linux\"\n"}, want: System{"arch", "Arch Linux"}},
		"no os-release":                   {fails: true},
		"os-release without an ID":        {files: map[string]string{"etc/os-release": "NAME=x\n"}, fails: true},
		"rhel without a number is itself": {files: map[string]string{"etc/os-release": "ID=rhel\nVERSION_ID=eln\nPRETTY_NAME=E\n"}, want: System{"rheleln", "E"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := OS(tree(t, test.files))
			if (err != nil) != test.fails {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("system (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSecureBoot(t *testing.T) {
	const name = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	for text, want := range map[string]bool{"\x06\x00\x00\x00\x01": true, "\x06\x00\x00\x00\x00": false, "\x01": false} {
		if got, err := SecureBoot(tree(t, map[string]string{name: text})); err != nil || got != want {
			t.Errorf("%q: got %t, error %v", text, got, err)
		}
	}
	// MokSBStateRT is shim's: 1 disables validation. With the first attribute it was set by the operating system, and does not count.
	const shim = "sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
	for text, want := range map[string]bool{"\x06\x00\x00\x00\x01": false, "\x07\x00\x00\x00\x01": true, "\x06\x00\x00\x00\x00": true} {
		if got, err := SecureBoot(tree(t, map[string]string{name: "\x06\x00\x00\x00\x01", shim: text})); err != nil || got != want {
			t.Errorf("with shim's %q: got %t, error %v", text, got, err)
		}
	}
	if got, err := SecureBoot(tree(t, nil)); err != nil || got {
		t.Errorf("no EFI: got %t, error %v", got, err)
	}
}

func TestModules(t *testing.T) {
	got, err := Modules(tree(t, map[string]string{"proc/modules": "nvidia_uvm 4096000 0 - Live 0xffffffffc0000000 (OE)\n" +
		"nvidia 60000000 42 nvidia_uvm,nvidia_modeset, Live 0xffffffffc1000000 (OE)\n"}))
	if err != nil {
		t.Fatal(err)
	}
	want := []Module{{Name: "nvidia_uvm"}, {Name: "nvidia", Refs: 42, By: []string{"nvidia_uvm", "nvidia_modeset"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
	if _, err := Modules(tree(t, map[string]string{"proc/modules": "nvidia 6 many - Live 0x0\n"})); err == nil {
		t.Error("a count that is no number was taken")
	}
}

func writePCI(address, vendor, class, device string) map[string]string {
	folder := "sys/bus/pci/devices/" + address + "/"
	return map[string]string{folder + "vendor": vendor + "\n", folder + "class": class + "\n", folder + "device": device + "\n"}
}

func TestGPUs(t *testing.T) {
	files := map[string]string{}
	for _, device := range []map[string]string{
		writePCI("0000:b1:00.0", "0x10de", "0x030200", "0x2330"),
		writePCI("0000:17:00.0", "0x10de", "0x030000", "0x2204"),
		writePCI("0000:17:00.1", "0x10de", "0x040300", "0x1aef"), // the sound of a display card
		writePCI("0000:c1:00.0", "0x10de", "0x068000", "0x22a3"), // an NVSwitch
		writePCI("0000:02:00.0", "0x1002", "0x030000", "0x73bf"), // another vendor's
		writePCI("0001:01:00.0", "0x10de", "0x030200", "0x2330"),
	} {
		for path, text := range device {
			files[path] = text
		}
	}
	got, err := GPUs(tree(t, files))
	if err != nil {
		t.Fatal(err)
	}
	want := []pci.Function{
		{Address: "0000:17:00.0", Device: "2204", Display: true}, {Address: "0000:b1:00.0", Device: "2330"}, {Address: "0001:01:00.0", Device: "2330"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
	for want, gpus := range map[string][]pci.Function{"unknown": got, "graphics": got[:1], "compute": got[1:]} {
		if mode := Mode(gpus); mode != want {
			t.Errorf("mode of %v is %s, want %s", gpus, mode, want)
		}
	}
	if mode := Mode(nil); mode != "unknown" {
		t.Errorf("mode without GPUs is %s", mode)
	}
	if diff := cmp.Diff([]string{"2204", "2330"}, Devices(got)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if got, err := GPUs(tree(t, nil)); err != nil || len(got) != 0 {
		t.Errorf("a machine without PCI: %v, error %v", got, err)
	}
}

func TestLoadedDriver(t *testing.T) {
	tests := map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: gcc 12.3.0\n": "535.104.05",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)\n":                            "580.95.05",
	}
	for text, want := range tests {
		if got, err := LoadedDriver(tree(t, map[string]string{"proc/driver/nvidia/version": text})); err != nil || got != want {
			t.Errorf("got %q, error %v; want %q", got, err, want)
		}
	}
	if got, err := LoadedDriver(tree(t, nil)); err != nil || got != "" {
		t.Errorf("not loaded: %q, error %v", got, err)
	}
	if _, err := LoadedDriver(tree(t, map[string]string{"proc/driver/nvidia/version": "nonsense"})); err == nil {
		t.Error("a file without a version was taken for one")
	}
}

func TestHostDriver(t *testing.T) {
	const folder = "usr/lib/x86_64-linux-gnu/"
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"none": {nil, ""},
		"installed": {map[string]string{"usr/bin/nvidia-smi": "x", folder + "libnvidia-ml.so.1": "-> libnvidia-ml.so.570.86.10",
			folder + "libnvidia-ml.so.570.86.10": "x"}, "570.86.10"},
		"a library alone is no driver": {map[string]string{folder + "libnvidia-ml.so.570.86.10": "x"}, ""},
		"a program alone is no driver": {map[string]string{"usr/bin/nvidia-smi": "x"}, ""},
		"a link into the driver container": {map[string]string{"usr/bin/nvidia-smi": "-> /run/nvidia/driver/usr/bin/nvidia-smi",
			"run/nvidia/driver/usr/bin/nvidia-smi": "x", folder + "libnvidia-ml.so.1": "-> /run/nvidia/driver/" + folder + "libnvidia-ml.so.580.1.2",
			"run/nvidia/driver/" + folder + "libnvidia-ml.so.580.1.2": "x"}, ""},
		"only in the driver container": {map[string]string{"run/nvidia/driver/usr/bin/nvidia-smi": "x",
			"run/nvidia/driver/usr/lib64/libnvidia-ml.so.580.1.2": "x"}, ""},
		"a dangling link is nothing": {map[string]string{"usr/bin/nvidia-smi": "-> gone", "usr/lib64/libnvidia-ml.so.580.1.2": "x"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := HostDriver(tree(t, test.files)); err != nil || got != test.want {
				t.Errorf("got %q, error %v; want %q", got, err, test.want)
			}
		})
	}
}
