package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/installer/host"
)

func TestCheck(t *testing.T) {
	fine := Seen{Kernel: "6.8.0-79-generic", OS: "ubuntu24.04", Nouveau: -1, Disks: []Disk{{Path: "/", Free: 4 << 30}}}
	want := Want{Kernel: fine.Kernel, OS: fine.OS, Modules: Compiled, MinFree: 1 << 30}
	tests := map[string]struct {
		change   func(*Want, *Seen)
		reasons  []string
		contains string
	}{
		"nothing is wrong":                   {func(*Want, *Seen) {}, nil, ""},
		"nothing is expected":                {func(w *Want, _ *Seen) { w.Kernel, w.OS = "", "" }, nil, ""},
		"another kernel since":               {func(_ *Want, s *Seen) { s.Kernel = "6.8.0-80-generic" }, []string{KernelChanged}, "6.8.0-80-generic"},
		"another system":                     {func(_ *Want, s *Seen) { s.OS = "ubuntu22.04" }, []string{OSChanged}, "ubuntu22.04"},
		"the host has a driver":              {func(_ *Want, s *Seen) { s.HostDriver = "550.54.15" }, []string{HostDriver}, "550.54.15"},
		"nouveau unused is unloaded later":   {func(_ *Want, s *Seen) { s.Nouveau = 0 }, nil, ""},
		"nouveau in use":                     {func(_ *Want, s *Seen) { s.Nouveau = 2 }, []string{NouveauInUse}, "blacklist"},
		"secure boot, modules without names": {func(_ *Want, s *Seen) { s.SecureBoot = true }, []string{SecureBoot}, "usePrecompiled"},
		"secure boot, signed modules":        {func(w *Want, s *Seen) { s.SecureBoot, w.Modules = true, Precompiled }, nil, ""},
		"no headers, the image has them":     {func(_ *Want, s *Seen) { s.Headers = false }, nil, ""},
		"no headers, the host's are needed":  {func(w *Want, _ *Seen) { w.Modules = CompiledWithHostHeaders }, []string{HeadersMissing}, "6.8.0-79-generic"},
		"full":                               {func(_ *Want, s *Seen) { s.Disks[0].Free = 100 << 20 }, []string{DiskFull}, "100 MiB"},
		"a disk with its own limit":          {func(_ *Want, s *Seen) { s.Disks = append(s.Disks, Disk{Path: "/run", Free: 2 << 20, Need: 1 << 20}) }, nil, ""},
		"everything at once": {func(_ *Want, s *Seen) {
			*s = Seen{Kernel: "1", OS: "x", SecureBoot: true, HostDriver: "1.2", Nouveau: 1, Disks: []Disk{{}}}
		}, []string{KernelChanged, OSChanged, HostDriver, NouveauInUse, SecureBoot, DiskFull}, "kernel"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, s := want, fine
			s.Disks = append([]Disk(nil), fine.Disks...)
			test.change(&w, &s)
			var reasons []string
			for _, f := range Check(w, s) {
				reasons = append(reasons, f.Reason)
			}
			if diff := cmp.Diff(test.reasons, reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			result := Result(w, s)
			if result.Done != (len(test.reasons) == 0) || !strings.Contains(result.Message, test.contains) {
				t.Errorf("result: %+v", result)
			}
			if len(test.reasons) > 0 && result.Reason != test.reasons[0] {
				t.Errorf("reason: got %s, want %s", result.Reason, test.reasons[0])
			}
		})
	}
}

func TestLook(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"proc/sys/kernel/osrelease": "6.8.0-79-generic\n", "etc/os-release": "ID=ubuntu\nVERSION_ID=24.04\n",
		"proc/modules": "nouveau 100 3 - Live 0x0\n", "lib/modules/6.8.0-79-generic/kernel": "",
		"usr/src/linux/Makefile": "", "usr/src/linux/include/x.h": "",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	roots := host.Roots{Host: root, Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Driver: "/run/nvidia/driver"}
	seen, err := Look(roots, root)
	if err != nil {
		t.Fatal(err)
	}
	if seen.Kernel != "6.8.0-79-generic" || seen.OS != "ubuntu24.04" || seen.Nouveau != 3 || seen.Headers || len(seen.Disks) != 2 || seen.Disks[0].Free == 0 {
		t.Errorf("seen: %+v", seen)
	}
	// A link that distributions make, as the host means it.
	if err := os.Symlink("/usr/src/linux", filepath.Join(root, "lib/modules/6.8.0-79-generic/build")); err != nil {
		t.Fatal(err)
	}
	if seen, err = Look(roots, root); err != nil || !seen.Headers {
		t.Errorf("headers below a link of the host: %t, error %v", seen.Headers, err)
	}
	if err := os.Remove(filepath.Join(root, "etc/os-release")); err != nil {
		t.Fatal(err)
	}
	if _, err := Look(roots, root); err == nil {
		t.Error("a host without os-release was looked at without complaint")
	}
}
