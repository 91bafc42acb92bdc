package driver

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
)

var update = flag.Bool("update", false, "rewrite the lists of files in testdata")

// host returns the roots of a machine whose fake kernel has loaded the driver's version, with the driver's own files.
func host(t *testing.T, root Root) (dir string, roots driverroot.Roots) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes device nodes")
	}
	dir = t.TempDir()
	must(t, fakegpu.Install(t.Context(), dir, fakegpu.Spec{Machine: "h100x2", DriverVersion: root.Version}))
	return dir, driverroot.Roots{Host: "/", Proc: fakegpu.ProcRoot(dir), Sys: fakegpu.SysRoot(dir), Driver: root.Path, Dev: fakegpu.DevRoot(dir)}
}

// TestNVIDIAsFiles compares what a container is given of each driver with a list that a person has read.
func TestNVIDIAsFiles(t *testing.T) {
	Each(t, func(t *testing.T, root Root) {
		_, roots := host(t, root)
		driver, err := driverroot.Scan(roots)
		must(t, err)
		found := struct {
			Libraries, Programs, Firmware, Settings []driverroot.File
			Links                                   []driverroot.Link
			Folders                                 []string
		}{driver.Libraries, driver.Programs, driver.Firmware, driver.Settings, driver.Links, driver.Folders}
		text, err := json.MarshalIndent(found, "", "  ")
		must(t, err)
		got := strings.ReplaceAll(string(text), root.Path, "ROOT") + "\n"
		golden := filepath.Join("testdata", root.Version+".json")
		if *update {
			must(t, os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		must(t, err)
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("files (-want +got), write them with -update:\n%s", diff)
		}
	})
}

// TestNVIDIAsFilesDamaged: half a driver, and two versions of which the loaded one lacks a library, are refused by the name of the library; a library that
// has no right of execution works, because the kernel requires that of programs only.
func TestNVIDIAsFilesDamaged(t *testing.T) {
	Each(t, func(t *testing.T, root Root) {
		for name, test := range map[string]struct {
			damage func(t *testing.T, copied Root)
			want   string
		}{
			"without CUDA": {func(t *testing.T, copied Root) { must(t, os.Remove(copied.Library("libcuda"))) }, "libcuda.so." + root.Version},
			"without NVML": {func(t *testing.T, copied Root) { must(t, os.Remove(copied.Library("libnvidia-ml"))) }, "libnvidia-ml.so." + root.Version},
			"CUDA of another version": {func(t *testing.T, copied Root) {
				must(t, os.Rename(copied.Library("libcuda"), strings.TrimSuffix(copied.Library("libcuda"), root.Version)+"999.1"))
			}, "libcuda.so." + root.Version},
			"a link in place of the folder": {func(t *testing.T, copied Root) {
				must(t, os.RemoveAll(filepath.Join(copied.Path, folder)))
				must(t, os.Symlink("/", filepath.Join(copied.Path, folder)))
			}, "no such file or directory"},
			"NVML that cannot be executed": {func(t *testing.T, copied Root) {
				text, err := os.ReadFile(copied.Library("libnvidia-ml"))
				must(t, err)
				must(t, os.Remove(copied.Library("libnvidia-ml")))
				must(t, os.WriteFile(copied.Library("libnvidia-ml"), text, 0o400))
			}, ""},
		} {
			t.Run(name, func(t *testing.T) {
				copied := root.Copy(t)
				test.damage(t, copied)
				_, roots := host(t, copied)
				_, err := driverroot.Scan(roots)
				if test.want == "" && err == nil {
					return
				}
				if err == nil || test.want == "" || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q in the error, if any", err, test.want)
				}
			})
		}
	})
}
