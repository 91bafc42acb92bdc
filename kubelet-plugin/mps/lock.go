package mps

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mark is a byte of the lock file.
type mark int64

const (
	// alive is locked as long as a process of the daemon lives.
	alive mark = 0
	// serving is locked while the state file tells of a daemon that serves.
	serving mark = 1
)

// errLocked says that another open file holds the lock.
var errLocked = errors.New("locked")

// lock locks the mark or returns errLocked.
func lock(file *os.File, m mark) error {
	err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, m.as(unix.F_WRLCK))
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return errLocked
	case err != nil:
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}

// unlock lets go of the mark.
func unlock(file *os.File, m mark) error {
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, m.as(unix.F_UNLCK)); err != nil {
		return fmt.Errorf("unlock %s: %w", file.Name(), err)
	}
	return nil
}

// locked reports whether somebody holds the mark of the folder's lock; nobody does where there is none.
func locked(folder string, m mark) (bool, error) {
	file, err := os.Open(filepath.Join(folder, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	question := m.as(unix.F_WRLCK)
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, question)
	if err = errors.Join(err, file.Close()); err != nil {
		return false, fmt.Errorf("ask for the lock of %s: %w", folder, err)
	}
	return question.Type != unix.F_UNLCK, nil
}

func (m mark) as(kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Start: int64(m), Len: 1}
}

// isAt reports whether the open file is still the one at the path.
func isAt(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}

// holders returns the processes, other than this one, that have the file open under a lock. It sees
// those of its own PID namespace.
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
		// A process that has ended in between holds nothing.
		if open, err := os.Stat(descriptor); err != nil || !os.SameFile(open, want) {
			continue
		}
		// Whoever only asks for the lock has the file open, too, but has no lock on it (proc_pid_fdinfo(5)).
		text, err := os.ReadFile(filepath.Join("/proc", parts[2], "fdinfo", parts[4]))
		if err == nil && bytes.Contains(text, []byte("OFDLCK")) {
			found = append(found, pid)
		}
	}
	return found, nil
}
