package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Memory returns the resident memory of the process in KiB.
func (p *Process) Memory() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		var size int
		if _, err := fmt.Sscanf(string(line), "VmRSS: %d kB", &size); err == nil {
			return size, nil
		}
	}
	return 0, errors.New("no VmRSS")
}

// Worked returns the CPU time that the existing threads of the process have used. Threads that have exited are not
// counted.
func (p *Process) Worked() (time.Duration, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.Cmd.Process.Pid))
	if err != nil || len(stats) == 0 {
		return 0, errors.Join(fmt.Errorf("no threads of process %d", p.Cmd.Process.Pid), err)
	}
	var sum time.Duration
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var nanoseconds int64
		if err == nil {
			_, err = fmt.Sscan(string(text), &nanoseconds)
		}
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
		sum += time.Duration(nanoseconds)
	}
	return sum, nil
}
