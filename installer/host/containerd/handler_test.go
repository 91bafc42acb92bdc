package containerd

import (
	"os"
	"testing"
)

// Containers without a RuntimeClass get the default handler, in the sections and formats of containerd 1.7 and 2.
func TestNVIDIARuntime(t *testing.T) {
	const (
		current, former = "plugins.\"" + CRIRuntime + "\".containerd", "plugins.\"" + CRI + "\".containerd"
		imports         = "imports = ['other.toml']\n"
	)
	section := func(version, at, name, program string) string {
		return "version = " + version + "\n[" + at + "]\ndefault_runtime_name = '" + name + "'\n" +
			"[" + at + ".runtimes.'" + name + "'.options]\nBinaryName = '" + program + "'\n"
	}
	const program = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
	for name, test := range map[string]struct {
		main, other string
		load        func(Files, string) (Config, error)
		want        string
	}{
		"1.7 without a file":            {"", "", Load, ""},
		"1.7, runc":                     {section("2", former, "runc", "/usr/bin/runc"), "", Load, ""},
		"1.7, nvidia":                   {section("2", former, "nvidia", program), "", Load, "nvidia"},
		"1.7, nvidia without a program": {"version = 2\n[" + former + "]\ndefault_runtime_name = 'nvidia'\n", "", Load, "nvidia"},
		"1.7, another name":             {section("2", former, "gpu", program+".cdi"), "", Load, "gpu"},
		"1.7, only its name":            {section("2", former, "nvidia", "/usr/bin/crun"), "", Load, ""},
		"1.7, no default":               {"version = 2\n[" + former + ".runtimes.runc.options]\nBinaryName = '" + program + "'\n", "", Load, "runc"},
		"1.7, format 1":                 {section("1", "plugins.cri.containerd", "nvidia", program), "", Load, "nvidia"},
		"1.7, a later section":          {imports + section("2", former, "nvidia", program), "version = 2\n[plugins.\"" + CRI + "\"]\n", Load, ""},
		"2, format 3":                   {section("3", current, "nvidia", program), "", LoadMigrated, "nvidia"},
		"2, format 2":                   {section("2", former, "nvidia-cdi", program), "", LoadMigrated, "nvidia-cdi"},
		"2, format 3 ignores former":    {section("3", former, "nvidia", program), "", LoadMigrated, ""},
		"2, a later section adds":       {imports + section("3", current, "nvidia", program), "[" + current + "]\ndiscard_unpacked_layers = true\n", LoadMigrated, "nvidia"},
		"2, an import sets it":          {"version = 3\n" + imports, section("3", current, "nvidia", program), LoadMigrated, "nvidia"},
		"2, a handler that is not used": {"version = 3\n[" + current + ".runtimes.nvidia.options]\nBinaryName = '" + program + "'\n", "", LoadMigrated, ""},
	} {
		config, err := test.load(disk{main: test.main, "/etc/containerd/other.toml": test.other}, main)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := config.NVIDIARuntime(); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	for file, load := range map[string]func(Files, string) (Config, error){"testdata/default-1.7.29.toml": Load, "testdata/default-2.2.9.toml": LoadMigrated} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if config, err := load(disk{main: string(text)}, main); err != nil || config.NVIDIARuntime() != "" {
			t.Errorf("%s: %q, %v", file, config.NVIDIARuntime(), err)
		}
	}
}
