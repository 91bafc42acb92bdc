package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/installer/host"
)

// A verb prints how it ended, repeats it in the termination message, and fails when it did not succeed.
func TestHostVerbs(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"etc/os-release": "ID=ubuntu\nVERSION_ID=24.04\n", "proc/sys/kernel/osrelease": "6.8.0-79-generic\n",
		"proc/modules":                   "nvidia 100 1 - Live 0x0\n",
		"proc/31/comm":                   "trainer\n",
		"proc/31/maps":                   "7f00-7f01 rw-s 00000000 00:05 1 /dev/nvidia0\n",
		"proc/driver/nvidia/version":     "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Thu\n",
		"run/nvidia/nvidia-driver.state": "abc",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		args    []string
		reason  string
		message string
	}{
		"fits":             {[]string{"preflight", "--kernel=6.8.0-79-generic", "--os=ubuntu24.04", "--min-free=1"}, "", "ubuntu24.04"},
		"another kernel":   {[]string{"preflight", "--kernel=6.8.0-80-generic"}, "KernelChanged", "6.8.0-80-generic"},
		"in use":           {[]string{"unload"}, "ModuleInUse", "trainer (31)"},
		"the wanted one":   {[]string{"unload", "--digest=abc"}, "", "570.86.10"},
		"no driver":        {[]string{"mig-mode", "--mode=Enabled"}, "NoDriver", "nvidia-smi"},
		"no runtime":       {[]string{"toolkit", "--check"}, "RuntimeUnreachable", "--runtime-endpoint"},
		"nothing of ours":  {[]string{"toolkit", "--remove"}, "", "/etc/containerd/config.toml"},
		"no such modules":  {[]string{"preflight", "--modules=magic"}, "usage", "magic"},
		"two modes":        {[]string{"toolkit", "--watch", "--remove"}, "usage", "watch"},
		"simulated kernel": {[]string{"unload", "--simulated=/nonexistent"}, "ModuleInUse", "trainer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			c := command()
			var out bytes.Buffer
			c.SetOut(&out)
			c.SetArgs(append([]string{"host", "--host-root=" + root, "--proc-root=" + filepath.Join(root, "proc"), "--sys-root=" + filepath.Join(root, "sys"),
				"--termination-log=" + log}, test.args...))
			err := c.ExecuteContext(t.Context())
			if (err != nil) != (test.reason != "") {
				t.Fatalf("error %v", err)
			}
			if test.reason == "usage" {
				if !strings.Contains(err.Error(), test.message) || out.Len() > 0 {
					t.Errorf("error %v, printed %q", err, out.String())
				}
				return
			}
			written, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range [][]byte{out.Bytes(), written} {
				var got host.Result
				if err := json.Unmarshal(text, &got); err != nil || got.Verb != test.args[0] || got.Done != (test.reason == "") || got.Reason != test.reason {
					t.Errorf("%s, error %v", text, err)
				}
				if !strings.Contains(got.Message, test.message) {
					t.Errorf("message %q does not contain %q", got.Message, test.message)
				}
			}
		})
	}
}
