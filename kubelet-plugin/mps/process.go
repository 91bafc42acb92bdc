package mps

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes the process the parent of every descendant whose own parent has died: a daemon's servers must not
// outlive it unnoticed.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	return nil
}

// reapTimeout is how long killed children may take to end. A child that hangs in the driver ends when the GPU releases
// it.
const reapTimeout = 5 * time.Second

// killAndReapChildren kills all children and waits for them. No other code may wait for a child meanwhile.
func killAndReapChildren() error {
	for deadline := time.Now().Add(reapTimeout); ; time.Sleep(firstPause) {
		if err := killChildren(); err != nil {
			return err
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return nil
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("wait for the daemon's servers: %w", err)
			}
			if err == nil && pid == 0 {
				break
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the daemon's servers do not end within %v of being killed", reapTimeout)
		}
	}
}

// killChildren kills the processes whose parent is this one.
func killChildren() error {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		// The name, in parentheses, may have any characters; state and parent follow it (proc_pid_stat(5)).
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(os.Getpid()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}
