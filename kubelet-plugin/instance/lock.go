package instance

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The locks are open-file-description locks (fcntl(2), F_OFD_SETLK): they belong to the open file,
// are seen by every process that sees the file, and end with its last descriptor.

// lock takes the file's lock and fails when somebody else holds it.
func lock(file *os.File) error {
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, exclusive()); err != nil {
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}

// wait takes the file's lock once nobody holds it.
func wait(file *os.File) error {
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, exclusive())
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the lock of %s: %w", file.Name(), err)
		}
	}
}

// locked reports whether another open file holds the lock.
func locked(file *os.File) (bool, error) {
	question := exclusive()
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, question); err != nil {
		return false, fmt.Errorf("ask for the lock of %s: %w", file.Name(), err)
	}
	return question.Type != unix.F_UNLCK, nil
}

func exclusive() *unix.Flock_t { return &unix.Flock_t{Type: unix.F_WRLCK} }
