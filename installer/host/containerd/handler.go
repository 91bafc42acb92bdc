package containerd

import (
	"cmp"
	"path/filepath"
	"strings"
)

// nvidiaProgram begins the names of the programs of NVIDIA's container runtime, and nvidiaHandler is the name of its handler, which its installers
// choose. Source: NVIDIA Container Toolkit, cmd/nvidia-ctk-installer.
const (
	nvidiaProgram = "nvidia-container-runtime"
	nvidiaHandler = "nvidia"
)

// defaultHandler is the handler of containers without a RuntimeClass if the configuration names none, of containerd 1.7 and 2. Source: containerd,
// internal/cri/config/config_unix.go.
const defaultHandler = "runc"

// NVIDIARuntime returns the handler of containers without a RuntimeClass if it is NVIDIA's container runtime, and otherwise an empty text. Such
// containers get GPUs by the environment variable NVIDIA_VISIBLE_DEVICES.
func (c Config) NVIDIARuntime() string {
	settings := table(c.Section, "containerd")
	name, _ := settings["default_runtime_name"].(string)
	name = cmp.Or(name, defaultHandler)
	program, _ := table(settings, "runtimes", name, "options")["BinaryName"].(string)
	if !IsNVIDIA(name, program) {
		return ""
	}
	return name
}

// IsNVIDIA reports whether the handler is NVIDIA's container runtime, by its program or, if that is unknown, by its name.
func IsNVIDIA(handler, program string) bool {
	if program == "" {
		return handler == nvidiaHandler || strings.HasPrefix(handler, nvidiaHandler+"-")
	}
	return strings.HasPrefix(filepath.Base(program), nvidiaProgram)
}

// table returns the table at the path of keys, nil if there is none.
func table(in map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		in, _ = in[key].(map[string]any)
	}
	return in
}
