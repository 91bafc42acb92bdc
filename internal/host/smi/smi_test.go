package smi

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// script returns a program that runs the text with sh.
func script(t *testing.T, text string) Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Program{Path: path}
}

func TestRun(t *testing.T) {
	p := script(t, `echo "$PATH $HOME$LD_PRELOAD $*"; echo warning >&2`)
	got, err := p.Run(t.Context(), "-i", "0")
	if want := "/usr/sbin:/usr/bin:/sbin:/bin  -i 0\nwarning\n"; got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	// A dynamic linker that cannot find what it is to preload reports its name and goes on.
	p.Library = filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if got, err := p.Run(t.Context()); !strings.Contains(got, p.Library) || err != nil {
		t.Errorf("got %q, %v, want %s preloaded", got, err, p.Library)
	}
}

func TestClassification(t *testing.T) {
	tests := map[string]struct {
		text string
		want error
	}{
		"reset refused":           {`echo "GPU 00000000:1A:00.0: In use by another client"; exit 255`, ErrInUse},
		"reset refused, older":    {`echo "GPU 00000000:C1:00.0 is currently in use by another process."; exit 255`, ErrInUse},
		"device being used":       {`echo "1 device is currently being used by one or more other processes"; exit 1`, ErrInUse},
		"busy by status":          {"exit 19", ErrInUse},
		"reset not supported":     {`echo "Resetting GPU 00000000:01:00.0 is not supported."; exit 255`, ErrUnsupported},
		"not supported by status": {"exit 3", ErrUnsupported},
		"function not found":      {"exit 13", ErrUnsupported},
		"lost":                    {`echo "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost."; exit 255`, ErrLost},
		"lost by status":          {"exit 15", ErrLost},
		"module not loaded":       {"exit 9", ErrNoDriver},
		"library not found":       {"exit 12", ErrNoDriver},
		"another status":          {"exit 4", nil},
		"killed":                  {"kill -9 $$", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := script(t, test.text)
			_, err := p.Run(t.Context(), "-q")
			if err == nil || !strings.Contains(err.Error(), p.Path+" -q: ") {
				t.Fatalf("got %v", err)
			}
			for _, failure := range []error{ErrInUse, ErrUnsupported, ErrLost, ErrNoDriver, ErrStuck} {
				if errors.Is(err, failure) != (failure == test.want) { //nolint:errorlint // compares two sentinels
					t.Errorf("%v: is %v: %t", err, failure, errors.Is(err, failure))
				}
			}
		})
	}
	if _, err := (Program{Path: filepath.Join(t.TempDir(), "nvidia-smi")}).Run(t.Context()); !errors.Is(err, ErrNoDriver) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the program: %v", err)
	}
}

// endless returns a program that runs for minutes, as does a child of it that shares its output, and a function that waits until the
// program runs and returns the child.
func endless(t *testing.T) (p Program, started func() *os.Process) {
	t.Helper()
	p = script(t, "sleep 300 &\necho $! >$0.started\nexec sleep 300")
	if err := syscall.Mkfifo(p.Path+".started", 0o600); err != nil {
		t.Fatal(err)
	}
	return p, func() *os.Process {
		text, err := os.ReadFile(p.Path + ".started")
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		child, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = child.Kill() })
		return child
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	p, started := endless(t)
	cause := errors.New("kubelet's deadline")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx)
		ended <- err
	}()
	child := started()
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) || errors.Is(err, ErrStuck) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if err := child.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("Run waited for the program's child: %v", err)
	}
}

// TestRunAbandonsStuckProgram leaves out the kill, as the kernel does for a process in state D.
func TestRunAbandonsStuckProgram(t *testing.T) {
	p, started := endless(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, p.Path)
	left := make(chan *os.Process, 1)
	command.Cancel = func() error {
		left <- command.Process
		return nil
	}
	ended := make(chan error, 1)
	go func() {
		_, err := waitOrAbandon(ctx, command)
		ended <- err
	}()
	started()
	cancel()
	if err := <-ended; !errors.Is(err, ErrStuck) {
		t.Errorf("got %v, want %v", err, ErrStuck)
	}
	if err := (<-left).Kill(); err != nil {
		t.Errorf("the program ended although it was not killed: %v", err)
	}
}
