package containerd

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// TestLoadMigratedReadsWhatContainerdReads compares with `containerd config dump` of the lab's containerd 2. The cases whose names begin with "control"
// hold with any way to combine the two sections. Those of the current runtimes do not hold if all nested tables are merged.
func TestLoadMigratedReadsWhatContainerdReads(t *testing.T) {
	program := labContainerd(t)
	const (
		former, current = "[plugins.'" + CRI + "'.containerd", "[plugins.'" + CRIRuntime + "'.containerd"
		standard        = "]\ndefault_runtime_name = 'gpu'\n"
		runtime         = ".runtimes.gpu]\nruntime_type = 'io.containerd.runc.v2'\n"
		options         = ".runtimes.gpu.options]\nBinaryName = '/usr/bin/nvidia-container-runtime'\n"
		other           = "]\nignore_rdt_not_enabled_errors = true\n"
		imports         = "imports = ['other.toml']\n"
		nvidia          = former + standard + former + runtime + former + options
		nvidiaNow       = current + standard + current + runtime + current + options
	)
	runc := func(section string) string {
		return section + ".containerd.runtimes.runc.options]\nBinaryName = '/usr/bin/nvidia-container-runtime'\n"
	}
	for name, test := range map[string]struct {
		main, other string
		want        string
	}{
		"format 2, both sections":                       {"version = 2\n" + nvidia + current + other, "", "gpu"},
		"format 2, the current section in an import":    {"version = 2\n" + imports + nvidia, current + other, "gpu"},
		"format 2, the former section in an import":     {"version = 2\n" + imports + current + other, "version = 2\n" + nvidia, "gpu"},
		"format 2, the current default":                 {"version = 2\n" + nvidia + current + "]\ndefault_runtime_name = 'runc'\n", "", ""},
		"format 2, the current runtimes":                {"version = 2\n" + nvidia + current + ".runtimes.kata]\nruntime_type = 'io.containerd.kata.v2'\n", "", ""},
		"format 2, the current runtime without options": {"version = 2\n" + nvidia + current + runtime, "", ""},
		"control: format 2, the former section":         {"version = 2\n" + nvidia, "", "gpu"},
		"control: format 2, the current section":        {"version = 2\n" + nvidiaNow, "", "gpu"},
		"control: format 3":                             {"version = 3\n" + nvidiaNow, "", "gpu"},
		"control: format 3 ignores the former":          {"version = 3\n" + nvidia + current + other, "", ""},
		"control: format 3, an import":                  {"version = 3\n" + imports + nvidiaNow, "version = 3\n" + current + other, "gpu"},
		"3 imports 2":                                   {"version = 3\n" + imports + current + other, "version = 2\n" + nvidia, "gpu"},
		"format 2, no default":                          {"version = 2\n" + runc("[plugins.'"+CRI+"'"), "", "runc"},
		"format 3, no default":                          {"version = 3\n" + runc("[plugins.'"+CRIRuntime+"'"), "", "runc"},
		"control: no imports":                           {"version = 3\n", "version = 3\n" + nvidiaNow, ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path, files := filepath.Join(folder, "config.toml"), disk{}
			for file, text := range map[string]string{path: test.main, filepath.Join(folder, "other.toml"): test.other} {
				files[file] = text
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := LoadMigrated(files, path)
			if err != nil {
				t.Fatal(err)
			}
			want := dump(t, program, path)
			if got.NVIDIARuntime() != test.want || want.NVIDIARuntime() != test.want {
				t.Errorf("NVIDIA's runtime by default: LoadMigrated %q, containerd %q, want %q", got.NVIDIARuntime(), want.NVIDIARuntime(), test.want)
			}
			if got, want := got.CDI("/var/run/cdi"), want.CDI("/var/run/cdi"); got != want {
				t.Errorf("CDI: LoadMigrated %t, containerd %t", got, want)
			}
			options := []string{"containerd", "runtimes", "gpu", "options"}
			if diff := cmp.Diff(table(want.Section, options...), table(got.Section, options...)); diff != "" {
				t.Errorf("options of the runtime (-containerd +LoadMigrated):\n%s", diff)
			}
		})
	}
}

// labContainerd returns the program of the lab's containerd 2.
func labContainerd(t *testing.T) string {
	cache, err := binaries.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "bin", binaries.Containerd+"-v2.*", "containerd"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Skipf("no containerd 2 in %s: the tests of the lab build it", cache)
	}
	return found[len(found)-1]
}

// dump returns the configuration that containerd has from a file.
func dump(t *testing.T, program, path string) Config {
	command := exec.CommandContext(t.Context(), program, "--config", path, "config", "dump")
	command.Stderr = t.Output()
	text, err := command.Output()
	if err != nil {
		t.Fatalf("containerd config dump: %v", err)
	}
	d, err := parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Version: d.Version, Section: d.Plugins[CRIRuntime]}
}
