package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Identity identifies a process uniquely: a PID can be reused, the combination of PID, start time and boot ID cannot.
type Identity struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`  // clock ticks since boot, field 22 of /proc/<pid>/stat
	BootID string `json:"bootID"` // of the host
}

// Identify reads the identity of a running process.
func Identify(pid int) (Identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	start, err := startTime(string(stat))
	if err != nil {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return Identity{PID: pid, Start: start, BootID: strings.TrimSpace(string(boot))}, nil
}

// startTime returns field 22 of a stat line. The program's name, field 2, may contain blanks and parentheses: it ends
// at the last closing one. A zombie is an error.
func startTime(stat string) (uint64, error) {
	const fieldsAfterName = 22 - 2
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < fieldsAfterName {
		return 0, fmt.Errorf("stat line %q is too short", stat)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return 0, fmt.Errorf("it has ended")
	}
	return strconv.ParseUint(fields[fieldsAfterName-1], 10, 64)
}

// Alive reports whether the identified process still runs.
func (i Identity) Alive() bool {
	now, err := Identify(i.PID)
	return err == nil && now == i
}

// end sends the signal to the process, if it still runs, and waits until it has exited. The process is opened by a
// pidfd before its identity is checked, so that no other process is signaled.
func (i Identity) end(ctx context.Context, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(i.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hold process %d: %w", i.PID, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if !i.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", i.PID, err)
	}
	return awaitEnd(ctx, fd)
}

// awaitEnd waits for a pidfd, with a short poll timeout so that the end of ctx is noticed.
func awaitEnd(ctx context.Context, fd int) error {
	const turn = 50 // milliseconds
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, turn)
		if ready > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for a process to end: %w", err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for a process to end: %w", ctx.Err())
		}
	}
}

func (m Machine) identityFile() string { return filepath.Join(m.folder, "pid.json") }

// identity reads the identity of the machine's first process. ok is false if the machine was never started or was shut
// down.
func (m Machine) identity() (identity Identity, ok bool, err error) {
	text, err := os.ReadFile(m.identityFile())
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("read the machine's process: %w", err)
	}
	if err := json.Unmarshal(text, &identity); err != nil {
		return Identity{}, false, fmt.Errorf("read the machine's process: %w", err)
	}
	return identity, true, nil
}

func (m Machine) remember(identity Identity) error {
	text, err := json.Marshal(identity)
	if err != nil {
		return fmt.Errorf("record the machine's process: %w", err)
	}
	next := m.identityFile() + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return fmt.Errorf("record the machine's process: %w", err)
	}
	if err := os.Rename(next, m.identityFile()); err != nil {
		return fmt.Errorf("record the machine's process: %w", err)
	}
	return nil
}
