package crio

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/containerd"
)

func TestNVIDIARuntime(t *testing.T) {
	const nvidia = "[crio.runtime]\ndefault_runtime = \"nvidia\"\n[crio.runtime.runtimes.nvidia]\nruntime_path = \"/usr/bin/nvidia-container-runtime\"\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  string
		fails bool
	}{
		"no file":                   {nil, "", false},
		"crun":                      {map[string]string{Main: "[crio.runtime]\ndefault_runtime = \"crun\"\n"}, "", false},
		"nvidia":                    {map[string]string{Main: nvidia}, "nvidia", false},
		"nvidia in a drop-in":       {map[string]string{Main: "[crio]\n", "/etc/crio/crio.conf.d/99-nvidia.conf": nvidia}, "nvidia", false},
		"a later drop-in overrides": {map[string]string{"/etc/crio/crio.conf.d/10-nvidia.conf": nvidia, "/etc/crio/crio.conf.d/20-own.conf": "[crio.runtime]\ndefault_runtime = \"crun\"\n"}, "", false},
		"only a handler":            {map[string]string{Main: "[crio.runtime.runtimes.nvidia]\nruntime_path = \"/usr/bin/nvidia-container-runtime\"\n"}, "", false},
		"no TOML":                   {map[string]string{Main: "[crio"}, "", true},
	} {
		root := t.TempDir()
		for path, text := range test.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := NVIDIARuntime(containerd.OnHost{Roots: host.Roots{Host: root}})
		if got != test.want || (err != nil) != test.fails {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test.want)
		}
	}
}
