package fakegpu

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// modules runs a command of MPS version 3.
func (m mpsMachine) modules(ctx context.Context, words ...string) (string, error) {
	command := exec.CommandContext(ctx, MPSControl(m.dir), words...)
	command.Env = m.env()
	output, err := command.CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

// TestMPSNamespaces runs the commands of NVIDIA's documentation (Multi-Process Service 615, MPS v3 Interface), with its answers, and those of a published
// script that limits a container (start-mps-v3.sh of code-context-mcp), on a driver that has version 3.
func TestMPSNamespaces(t *testing.T) {
	t.Parallel()
	m := newMPS(t, install(t, Spec{Machine: "h100x2", DriverVersion: "615.71.09"}))
	pipe := filepath.Join(m.folder, "pipe")
	d := m.start(t, []string{"-m"}, []string{"CUDA_MPS_PROTOCOL_VERSION=3"})
	uuid := catalog.UUID("node1", 1)
	for _, test := range []struct{ words, want string }{
		{"server list codecontext", "!"},                                          // the script starts over if there is one
		{"server create training --allowed-devices=" + uuid + " --uid=1000", "!"}, // multiuser: only uid 0
		{"server create training --allowed-devices=" + uuid + " --uid=0", ""},
		{"server set training --pinned-memory-limit=8G", ""},
		{"server get training pipe-directory", pipe + "/training"},
		{"namespace create high_priority --server=training", ""},
		{"namespace create high_priority --server=training", "!"},
		{"namespace create High --server=training", "!"},
		{"namespace create other", "!"},
		{"namespace set high_priority --server=training --pinned-memory-limit=4G", ""},
		{"namespace get high_priority training pinned-memory-limit", "4G"},
		{"namespace set high_priority --server=training", "!"}, // at least one option
		{"namespace set high_priority --server=training --pinned-memory-limit=4", "!"},
		{"namespace set high_priority --server=training --active-thread-percentage=101", "!"},
		{"namespace set high_priority --server=training --active-thread-percentage=25", ""},
		{"namespace list --server=training --format=csv,noheader", "default,training,Ready,8G,100.00,0," + pipe + "/training/default\n" +
			"high_priority,training,Ready,4G,25.00,0," + pipe + "/training/high_priority"},
		{"server create codecontext --uid=0 --allowed-devices=0", ""}, // several servers at once
		{"namespace create mcp --server=codecontext", ""},
		{"namespace set mcp --server=codecontext --pinned-memory-limit=4096M", ""},
		{"namespace get mcp codecontext pipe-directory", pipe + "/codecontext/mcp"},
		{"server delete codecontext --force", ""},
		{"namespace delete high_priority --server=other", "!"},
		{"nonsense list", "!"},
	} {
		got, err := m.modules(t.Context(), strings.Fields(test.words)...)
		if refused := test.want == "!"; refused != (err != nil) || !refused && got != test.want {
			t.Errorf("%s: %q, %v, want %q", test.words, got, err, test.want)
		}
	}
	for name, want := range map[string]string{
		"training/high_priority": "1 devices, 4096 MiB, 32 SMs, then 2",
		"training/default":       "1 devices, 8192 MiB, 132 SMs, then 2",
		"training":               "1 devices, 8192 MiB, 132 SMs, then 2",
		".":                      "1 devices, 8192 MiB, 132 SMs, then 2",
		"training/misspelled":    "2 devices, 81079 MiB, 132 SMs, then 2", // without MPS
	} {
		if got := m.share(t, []string{"CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(pipe, name), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"}).brief(); got != want {
			t.Errorf("a client of %s: %s, want %s", name, got, want)
		}
	}
	// The program follows the daemon, whatever its own option is.
	if got, err := m.modules(t.Context(), "-p", "2", "server", "get", "training", "status"); err != nil || got != "Ready" {
		t.Errorf("with the option of version 2: %q, %v", got, err)
	}
	if _, err := m.modules(t.Context(), "--quit"); err != nil {
		t.Error(err)
	}
	if err := <-d.ended; err != nil {
		t.Errorf("after quit: %v", err)
	}
	if _, err := os.Stat(filepath.Join(pipe, "training", "high_priority")); err == nil {
		t.Error("the folder of a namespace outlives the daemon")
	}
}

// TestMPSVanishedServer: a server with a device that does not exist is accepted, and not listed (NVIDIA's Dynamo, "Per-GPU Compute and Memory Limits with MPS").
func TestMPSVanishedServer(t *testing.T) {
	t.Parallel()
	m := newMPS(t, install(t, Spec{Machine: "h100x2", DriverVersion: "615.71.09"}))
	m.start(t, []string{"-p", "3"}, nil)
	if got, err := m.modules(t.Context(), "server", "create", "lost", "--allowed-devices=GPU-1"); err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := m.modules(t.Context(), "server", "list", "--format=csv,noheader"); err != nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestMPSVersions: the program of older drivers has no version 3, and ignores the variable.
func TestMPSVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"580.65.06": false, "615.71.09": true} {
		m := newMPS(t, install(t, Spec{Machine: "t4x1", DriverVersion: version}))
		help, err := m.modules(t.Context(), "-p", "3", "-h")
		if has := err == nil && strings.Contains(help, "namespace"); has != want {
			t.Errorf("%s has version 3: %t, want %t: %s, %v", version, has, want, help, err)
		}
		m.start(t, nil, []string{"CUDA_MPS_PROTOCOL_VERSION=3"})
		if got, err := m.try(t, "get_default_active_thread_percentage"); (err == nil && got == "100.0") == want {
			t.Errorf("%s, a line of version 2: %q, %v", version, got, err)
		}
	}
}
