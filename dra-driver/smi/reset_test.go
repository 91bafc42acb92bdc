package smi

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/internal/host/smi"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// addresses are the PCI addresses of GPUs of a machine.
func addresses(t *testing.T, machine string, indexes ...int) []string {
	t.Helper()
	var list []string
	for _, index := range indexes {
		list = append(list, gputest.Node(t, machine).GPUs[index].PCI)
	}
	return list
}

func resets(t *testing.T, dir string) []int {
	t.Helper()
	state, err := fakegpu.Read(dir)
	must(t, err)
	var counts []int
	for _, g := range state.GPUs {
		counts = append(counts, g.Resets)
	}
	return counts
}

func TestReset(t *testing.T) {
	tool, dir := install(t, "h100x8")
	must(t, fakegpu.RequireReset(dir, 5)) // has no UUID to ask for
	must(t, tool.Reset(t.Context(), addresses(t, "h100x8", 5)))
	must(t, tool.Reset(t.Context(), addresses(t, "h100x8", 0, 5)))
	if diff := cmp.Diff([]int{1, 0, 0, 0, 0, 2, 0, 0}, resets(t, dir)); diff != "" {
		t.Errorf("resets (-want +got):\n%s", diff)
	}
}

// persistence asks nvidia-smi, as one that is not the tool.
func persistence(t *testing.T, dir, index string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), fakegpu.SMI(dir), "-i", index, "--query-gpu=persistence_mode", "--format=csv,noheader").Output()
	must(t, err)
	return strings.TrimSpace(string(output))
}

// Persistence mode has a GPU open: it is off during the reset, and afterwards as it was, whatever became of the reset.
func TestResetInPersistenceMode(t *testing.T) {
	tool, dir := install(t, "h100x2")
	must(t, exec.CommandContext(t.Context(), fakegpu.SMI(dir), "-pm", "1", "-i", "0").Run())
	must(t, tool.Reset(t.Context(), addresses(t, "h100x2", 0, 1)))
	must(t, fakegpu.StartProcess(dir, fakegpu.On(1), 7, 0))
	if err := tool.Reset(t.Context(), addresses(t, "h100x2", 0, 1)); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("with a process: %v, want busy", err)
	}
	if diff := cmp.Diff([]int{1, 1}, resets(t, dir)); diff != "" {
		t.Errorf("resets (-want +got):\n%s", diff)
	}
	if first, second := persistence(t, dir, "0"), persistence(t, dir, "1"); first != "Enabled" || second != "Disabled" {
		t.Errorf("persistence mode is %s and %s, want Enabled and Disabled as before", first, second)
	}
}

func TestResetRefused(t *testing.T) {
	tests := map[string]struct {
		harm    func(dir string) error
		want    error
		message string
	}{
		"in use":             {func(dir string) error { return fakegpu.StartProcess(dir, fakegpu.On(1), 7, 0) }, gpu.ErrBusy, "In use by another client"},
		"fallen off the bus": {func(dir string) error { return fakegpu.Lose(dir, 1) }, gpu.ErrLost, "GPU is lost"},
		"lost meanwhile":     {func(dir string) error { return fakegpu.Fail(dir, fakegpu.ResetGPU, 15, 1) }, gpu.ErrLost, "GPU is lost"},
		"not supported":      {func(dir string) error { return fakegpu.Fail(dir, fakegpu.ResetGPU, 3, 1) }, gpu.ErrUnsupported, "Not Supported"},
		"something else":     {func(dir string) error { return fakegpu.Fail(dir, fakegpu.ResetGPU, 999, 1) }, nil, "Unknown Error"},
		"no driver":          {fakegpu.RemoveDriver, gpu.ErrNoDriver, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tool, dir := install(t, "h100x2")
			must(t, test.harm(dir))
			err := tool.Reset(t.Context(), addresses(t, "h100x2", 0, 1))
			if err == nil {
				t.Fatal("got no error")
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v: is not %v", err, test.want)
			}
			for _, sentinel := range []error{gpu.ErrBusy, gpu.ErrLost, gpu.ErrUnsupported, gpu.ErrNoDriver} {
				if !errors.Is(test.want, sentinel) && errors.Is(err, sentinel) {
					t.Errorf("%v: is %v", err, sentinel)
				}
			}
			if !strings.Contains(err.Error(), test.message) || !strings.Contains(err.Error(), "0000:43:00.0") {
				t.Errorf("%v: does not contain %q and the GPU", err, test.message)
			}
			if diff := cmp.Diff([]int{0, 0}, resets(t, dir)); diff != "" {
				t.Errorf("resets (-want +got):\n%s", diff)
			}
		})
	}
	tool, _ := install(t, "t4x1")
	if err := tool.Reset(t.Context(), nil); err == nil {
		t.Error("a reset of nothing, which nvidia-smi takes for one of everything, was accepted")
	}
	if err := tool.Reset(t.Context(), []string{"0000:ee:00.0"}); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("a GPU that is not there: %v", err)
	}
}

// script returns a program in the place of nvidia-smi.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return path
}

// The words with which hardware refuses, and the exit status that does not tell why.
func TestResetClassifiesHardwareOutput(t *testing.T) {
	tests := map[string]struct {
		message string
		want    error
	}{
		"in use": {"The following GPUs could not be reset:\n  GPU 00000000:1A:00.0: In use by another client\n\n1 device is currently being used by one or more other processes", gpu.ErrBusy},
		"older":  {"GPU 00000000:C1:00.0 is currently in use by another process.", gpu.ErrBusy},
		"lost":   {"Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU", gpu.ErrLost},
		"never":  {"Resetting GPU 00000000:01:00.0 is not supported.", gpu.ErrUnsupported},
	}
	for name, test := range tests {
		path := script(t, "case \"$*\" in *query*) echo Disabled;; *) printf '"+test.message+"'; exit 255;; esac")
		err := New(func() (smi.Program, error) { return smi.Program{Path: path}, nil }).Reset(t.Context(), []string{"0000:3b:00.0"})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// A reset that hangs ends with its context, and persistence mode comes back all the same.
func TestResetEndsWithItsContext(t *testing.T) {
	output, hangs := filepath.Join(t.TempDir(), "output"), filepath.Join(t.TempDir(), "hangs")
	must(t, unix.Mkfifo(hangs, 0o600))
	path := script(t, "echo \"$*\" >> "+output+"\ncase \"$*\" in *query*) echo Enabled;; *gpu-reset*) echo > "+hangs+"; exec sleep 30;; esac")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		if _, err := os.ReadFile(hangs); err != nil {
			t.Error(err)
		}
	}()
	err := New(func() (smi.Program, error) { return smi.Program{Path: path}, nil }).Reset(ctx, []string{"0000:3b:00.0"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context has ended", err)
	}
	text, err := os.ReadFile(output)
	must(t, err)
	want := []string{
		"-i 00000000:3B:00.0 --query-gpu=persistence_mode --format=csv,noheader", "-pm 0 -i 00000000:3B:00.0",
		"--gpu-reset -i 00000000:3B:00.0", "-pm 1 -i 00000000:3B:00.0",
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(text)), "\n")); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
