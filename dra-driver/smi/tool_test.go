package smi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/internal/host/smi"
)

// install lays a fake machine down and returns a tool that runs its nvidia-smi.
func install(t *testing.T, machine string) (tool *Tool, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := fakegpu.InstallDriver(t.Context(), dir, fakegpu.Spec{Machine: machine}); err != nil {
		t.Fatal(err)
	}
	return New(func() (smi.Program, error) {
		return smi.Program{Path: fakegpu.SMI(dir), Library: fakegpu.Library(dir)}, nil
	}), dir
}

func timeSlices(t *testing.T, dir string) []int {
	t.Helper()
	state, err := fakegpu.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var slices []int
	for _, g := range state.GPUs {
		slices = append(slices, g.TimeSlice)
	}
	return slices
}

func TestSet(t *testing.T) {
	tool, dir := install(t, "h100x2")
	uuid := catalog.UUID("node1", 1)
	for number, interval := range []string{"Default", "Short", "Medium", "Long", "Default"} {
		if err := tool.Set(t.Context(), uuid, interval); err != nil {
			t.Fatal(err)
		}
		if got, want := timeSlices(t, dir), number%4; got[0] != 0 || got[1] != want {
			t.Errorf("%s: the GPUs have %v, want 0 and %d", interval, got, want)
		}
	}
}

func TestSetRefused(t *testing.T) {
	tool, dir := install(t, "a30x4l40sx4") // the first two GPUs are in MIG mode
	normal := catalog.UUID("node1", 7)
	tests := map[string]struct {
		uuid, interval string
		harm           func() error
		want           error
		messages       string
	}{
		"not an interval": {uuid: normal, interval: "short", messages: "must be one of Default, Short, Medium, Long"},
		"no such GPU":     {uuid: "GPU-00000000-0000-0000-0000-000000000000", interval: "Short", messages: "No devices were found"},
		"MIG mode":        {uuid: catalog.UUID("node1", 0), interval: "Short", want: gpu.ErrUnsupported, messages: "Not Supported"},
		"a lost GPU": {uuid: normal, interval: "Short", want: gpu.ErrLost, messages: "GPU is lost",
			harm: func() error { return fakegpu.Fail(dir, "nvidia-smi:set-timeslice", 15, 1) }},
		"no rights": {uuid: normal, interval: "Short", messages: "Insufficient Permissions",
			harm: func() error { return fakegpu.Fail(dir, "nvidia-smi:set-timeslice", 4, 1) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.harm != nil {
				if err := test.harm(); err != nil {
					t.Fatal(err)
				}
			}
			err := tool.Set(t.Context(), test.uuid, test.interval)
			if err == nil {
				t.Fatal("got no error")
			}
			for _, part := range []string{test.uuid, test.interval, test.messages} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: does not contain %q", err, part)
				}
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v: is not %v", err, test.want)
			}
		})
	}
	for i, slice := range timeSlices(t, dir) {
		if slice != 0 {
			t.Errorf("GPU %d has time slice %d after calls that failed", i, slice)
		}
	}
}

// A driver comes and goes: the program is looked for at every call.
func TestSetWithoutDriver(t *testing.T) {
	tool, dir := install(t, "t4x1")
	uuid := catalog.UUID("node1", 0)
	if err := fakegpu.RemoveDriver(dir); err != nil {
		t.Fatal(err)
	}
	if err := tool.Set(t.Context(), uuid, "Long"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a driver: got %v, want that there is no such file", err)
	}
	if err := fakegpu.RestoreDriver(dir); err != nil {
		t.Fatal(err)
	}
	if err := tool.Set(t.Context(), uuid, "Long"); err != nil {
		t.Errorf("with a driver again: %v", err)
	}
	missing := errors.New("no driver root")
	broken := New(func() (smi.Program, error) { return smi.Program{}, missing })
	if err := broken.Set(t.Context(), uuid, "Long"); !errors.Is(err, missing) {
		t.Errorf("got %v, want %v", err, missing)
	}
}

// endless returns a program that lasts for minutes, as does a process of its own that shares its output, and a function that waits until
// it runs and returns that process.
func endless(t *testing.T) (path string, started func() *os.Process) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "nvidia-smi")
	script := "#!/bin/sh\nsleep 300 &\necho $! >$0.started\nexec sleep 300\n"
	if err := errors.Join(os.WriteFile(path, []byte(script), 0o755), syscall.Mkfifo(path+".started", 0o600)); err != nil {
		t.Fatal(err)
	}
	return path, func() *os.Process {
		started, err := os.ReadFile(path + ".started")
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(started)))
		if err != nil {
			t.Fatal(err)
		}
		own, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = own.Kill() })
		return own
	}
}

// A program that never ends must not keep kubelet waiting, nor one that outlives it and has its output.
func TestSetEndsWithItsContext(t *testing.T) {
	path, started := endless(t)
	tool := New(func() (smi.Program, error) { return smi.Program{Path: path}, nil })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- tool.Set(ctx, "GPU-1", "Short") }()
	own := started()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context has ended", err)
	}
	if err := own.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("Set waited for the program's own process: %v", err)
	}
	if err := tool.Set(ctx, "GPU-1", "Short"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: got %v", err)
	}
}
