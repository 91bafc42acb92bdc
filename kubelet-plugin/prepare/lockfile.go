package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How often a lock is tried that another process holds. That happens only while two agents overlap;
// within a process the queue wakes whoever is next.
const (
	shortestPause = time.Millisecond
	longestPause  = 50 * time.Millisecond
)

// errLocked says that another open file holds the lock.
var errLocked = errors.New("locked")

// lockFile locks the file, creating it, or returns errLocked. The lock is an open-file-description
// lock (fcntl(2), F_OFD_SETLK): the kernel releases it with the last descriptor of the open file, so
// it never outlives its process. The owner's name is left in the file for whoever waits.
func lockFile(path, owner string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
			return nil, errors.Join(errLocked, file.Close())
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		case isAt(file, path):
			if err := sign(file, owner); err != nil {
				return nil, errors.Join(fmt.Errorf("sign %s: %w", path, err), file.Close())
			}
			return file, nil
		}
		// The former holder removed the file between our open and our lock: open the next one.
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
}

// waitForFile locks the file as soon as no other process holds it. When ctx ends first, the error is
// a heldError.
func waitForFile(ctx context.Context, path, owner string) (*os.File, error) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		file, err := lockFile(path, owner)
		if !errors.Is(err, errLocked) {
			return file, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, &heldError{holder: signature(path), cause: context.Cause(ctx)}
		}
	}
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

func sign(file *os.File, owner string) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(owner), 0)
	return err
}

// signature returns who holds the lock file according to its text.
func signature(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return "another process"
	}
	return string(text) + " in another process"
}
