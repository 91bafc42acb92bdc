package smi

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fakegpu"
)

// install lays a fake machine down and returns a tool that runs its nvidia-smi.
func install(t *testing.T, machine string) (tool *Tool, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := fakegpu.InstallDriver(t.Context(), dir, fakegpu.Spec{Machine: machine}); err != nil {
		t.Fatal(err)
	}
	return New(func() (Program, error) {
		return Program{Path: fakegpu.SMI(dir), Library: fakegpu.Library(dir)}, nil
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
	uuid := gputest.UUID("node1", 1)
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
	normal := gputest.UUID("node1", 7)
	tests := map[string]struct {
		uuid, interval string
		harm           func() error
		want           error
		says           string
	}{
		"not an interval": {uuid: normal, interval: "short", says: "must be one of Default, Short, Medium, Long"},
		"no such GPU":     {uuid: "GPU-00000000-0000-0000-0000-000000000000", interval: "Short", says: "No devices were found"},
		"MIG mode":        {uuid: gputest.UUID("node1", 0), interval: "Short", want: gpu.ErrUnsupported, says: "Not Supported"},
		"a lost GPU": {uuid: normal, interval: "Short", want: gpu.ErrLost, says: "GPU is lost",
			harm: func() error { return fakegpu.Fail(dir, "nvidia-smi:set-timeslice", 15, 1) }},
		"no rights": {uuid: normal, interval: "Short", says: "Insufficient Permissions",
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
			for _, part := range []string{test.uuid, test.interval, test.says} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: does not say %q", err, part)
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
	uuid := gputest.UUID("node1", 0)
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
	broken := New(func() (Program, error) { return Program{}, missing })
	if err := broken.Set(t.Context(), uuid, "Long"); !errors.Is(err, missing) {
		t.Errorf("got %v, want %v", err, missing)
	}
}

// A program that never ends must not keep kubelet waiting.
func TestSetEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nsleep 20 &\nexec sleep 20\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tool := New(func() (Program, error) { return Program{Path: path}, nil })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := tool.Set(ctx, "GPU-1", "Short")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the deadline has passed", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	if err := tool.Set(ctx, "GPU-1", "Short"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a context that has ended: got %v", err)
	}
}

// A program that waits in the driver cannot be killed: whoever waits for it goes on.
func TestStuck(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	command := exec.CommandContext(ctx, "sleep", "20")
	left := make(chan *os.Process, 1)
	command.Cancel = func() error {
		left <- command.Process
		return nil
	}
	began := time.Now()
	if _, err := outcome(ctx, command); !errors.Is(err, errStuck) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	if err := (<-left).Kill(); err != nil {
		t.Error(err)
	}
}
