package mps

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// The bytes of a daemon's lock file, which are locked separately.
const (
	// aliveByte is locked as long as a process of the daemon exists: each inherits the open file.
	aliveByte = 0
	// servingByte is locked while the state file describes a daemon that serves.
	servingByte = 1
)

// isLocked reports whether another open file holds the byte of the daemon's lock file. A missing file is not locked.
func isLocked(folder string, offset int64) (bool, error) {
	return lock.IsHeldAt(filepath.Join(folder, lockName), lock.Byte(offset))
}

// holders returns the processes, other than this one, that have the file open with a lock. It finds only processes of
// its own PID namespace.
func holders(file *os.File) ([]int, error) {
	want, err := file.Stat()
	if err != nil {
		return nil, err
	}
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, descriptor := range descriptors {
		parts := strings.Split(descriptor, "/") // "", proc, PID, fd, number
		pid, err := strconv.Atoi(parts[2])
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that has ended meanwhile holds no lock.
		if open, err := os.Stat(descriptor); err != nil || !os.SameFile(open, want) {
			continue
		}
		// A process that only waits for the lock has the file open too, but has no lock on it (proc_pid_fdinfo(5)).
		text, err := os.ReadFile(filepath.Join("/proc", parts[2], "fdinfo", parts[4]))
		if err == nil && bytes.Contains(text, []byte("OFDLCK")) {
			found = append(found, pid)
		}
	}
	return found, nil
}
