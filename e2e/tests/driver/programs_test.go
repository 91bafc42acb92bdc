package driver

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/smi"
)

// TestNVIDIAsSMI runs the real nvidia-smi as the agent does: it answers that no driver is loaded. Without a driver it explains no subcommand, so that
// the options and answers that the agent relies on are looked for in the program itself.
func TestNVIDIAsSMI(t *testing.T) {
	Each(t, func(t *testing.T, root Root) {
		program := smi.Program{Path: filepath.Join(root.Path, "usr/lib/nvidia/current/nvidia-smi"), Library: root.Library("libnvidia-ml")}
		for _, arguments := range [][]string{
			{"--gpu-reset", "-i", "00000000:04:00.0"},
			{"-i", "00000000:04:00.0", "--query-gpu=persistence_mode", "--format=csv,noheader"},
			{"-pm", "0", "-i", "00000000:04:00.0"},
			{"compute-policy", "-i", "GPU-1", "--set-timeslice=1"},
		} {
			if _, err := program.Run(t.Context(), arguments...); !errors.Is(err, smi.ErrNoDriver) {
				t.Errorf("%v: got %v, want that no driver is loaded", arguments, err)
			}
		}
		if _, err := (smi.Program{Path: program.Path}).Run(t.Context(), "-L"); !errors.Is(err, smi.ErrNoDriver) {
			t.Errorf("without its library: got %v, want no driver", err)
		}
		text, err := os.ReadFile(program.Path)
		must(t, err)
		for _, word := range []string{
			"gpu-reset", "query-gpu", "persistence_mode", "noheader", "compute-policy", "set-timeslice", // what the agent passes
			"Not Supported", "In use by another client", "currently being used", "GPU is lost", "No devices were found", "could not be reset", "Enabled",
			"No devices found.", // what the fake answers to -L without a GPU
		} {
			if !bytes.Contains(text, []byte(word)) {
				t.Errorf("%q is not in the program", word)
			}
		}
	})
}

// TestNVIDIAsPersistenceDaemon: the real nvidia-persistenced has the options with which NVIDIA's entry point starts it (gpu-driver-container,
// nvidia-driver), and ends without a kernel module.
func TestNVIDIAsPersistenceDaemon(t *testing.T) {
	Each(t, func(t *testing.T, root Root) {
		daemon := filepath.Join(root.Path, "usr/bin/nvidia-persistenced")
		output, err := exec.CommandContext(t.Context(), daemon, "--help").CombinedOutput()
		must(t, err)
		for _, option := range []string{"--persistence-mode", "--no-persistence-mode", "--user="} {
			if !strings.Contains(string(output), option) {
				t.Errorf("no %s in\n%s", option, output)
			}
		}
		output, err = exec.CommandContext(t.Context(), daemon, "--version").CombinedOutput()
		must(t, err)
		if !regexp.MustCompile(`version ` + regexp.QuoteMeta(majorOf(root.Version)) + `\.`).Match(output) {
			t.Errorf("--version: got %q, want a version of branch %s", output, majorOf(root.Version))
		}
	})
}

func majorOf(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}
