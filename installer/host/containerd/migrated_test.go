package containerd

import (
	"os"
	"testing"
)

// TestDefaults reads what `containerd config default` of containerd 1.7.29 and 2.2.9 prints. A node that was upgraded to containerd 2 with the file of 1.7
// runs without CDI: `containerd config dump` of 2.2.9 prints enable_cdi = false for it.
func TestDefaults(t *testing.T) {
	for _, test := range []struct {
		file string
		load func(Files, string) (Config, error)
		want bool
	}{
		{"testdata/default-1.7.29.toml", Load, false},
		{"testdata/default-1.7.29.toml", LoadMigrated, false},
		{"testdata/default-2.2.9.toml", LoadMigrated, true},
	} {
		text, err := os.ReadFile(test.file)
		if err != nil {
			t.Fatal(err)
		}
		config, err := test.load(disk{main: string(text)}, main)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.CDI("/var/run/cdi"); got != test.want {
			t.Errorf("%s as version %d: CDI %t, want %t", test.file, config.Version, got, test.want)
		}
	}
}

// TestLoadMigrated has the results of `containerd config dump` of containerd 2.2.9 for the same files.
func TestLoadMigrated(t *testing.T) {
	const (
		current, former = "[plugins.\"" + CRIRuntime + "\"]\n", "[plugins.\"" + CRI + "\"]\n"
		on, off         = "enable_cdi = true\n", "enable_cdi = false\n"
		imports         = "imports = ['other.toml']\n"
	)
	for name, test := range map[string]struct {
		main, other string
		want        bool
	}{
		"no settings":                       {"", "", true},
		"format 3, off":                     {"version = 3\n" + current + off, "", false},
		"format 3, other folders":           {"version = 3\n" + current + "cdi_spec_dirs = ['/x']\n", "", false},
		"format 3 ignores the former":       {"version = 3\n" + former + off, "", true},
		"format 2, off":                     {"version = 2\n" + former + off, "", false},
		"format 2, the current one is used": {"version = 2\n" + current + on + former + off, "", true},
		"format 1 is ignored":               {"[plugins.cri]\n" + off, "", true},
		"format 1 by its number is ignored": {"version = 1\n[plugins.cri]\n" + off, "", true},
		"an import overrides":               {"version = 3\n" + imports + current + on, "version = 3\n" + current + off, false},
		"an import without the key":         {"version = 3\n" + imports + current + off, "version = 3\n" + current + "enable_selinux = false\n", false},
		"3 imports 2":                       {"version = 3\n" + imports + current + on, "version = 2\n" + former + off, true},
		"2 imports 3":                       {"version = 2\n" + imports, "version = 3\n" + current + off, false},
		"2 imports a file without version":  {"version = 2\n" + imports, former + off, false},
		"2 imports a file of format 1":      {"version = 2\n" + imports, "[plugins.cri]\n" + off, false},
	} {
		config, err := LoadMigrated(disk{main: test.main, "/etc/containerd/other.toml": test.other}, main)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := config.CDI("/var/run/cdi"); got != test.want {
			t.Errorf("%s: CDI %t, want %t", name, got, test.want)
		}
	}
}
