// Package lock takes open-file-description locks (fcntl(2), F_OFD_SETLK).
//
// Such a lock belongs to the open file, not to the process: two descriptors of one process exclude each other, and a child that inherits
// the descriptor holds the lock too. The kernel releases it when the last descriptor of the open file is closed, whatever ends the
// process. Every process that sees the file sees its locks; they do not restrict reading and writing.
//
// All functions are safe for concurrent use with different open files.
package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// ErrHeld means that another open file holds a lock that excludes the wanted one.
var ErrHeld = errors.New("locked")

// Kind is the kind of a lock.
type Kind int16

// The kinds. Any number of open files can hold a Shared lock at the same time; an Exclusive one excludes all others.
const (
	Shared    Kind = unix.F_RDLCK
	Exclusive Kind = unix.F_WRLCK
)

// Range is a part of a file that is locked by itself. The bytes need not exist. The zero value is the whole file, however long it grows.
type Range struct{ Start, Length int64 }

// Byte is the range of one byte.
func Byte(offset int64) Range { return Range{Start: offset, Length: 1} }

// Open opens a lock file, readable and writable only for its owner, and creates it if it is missing. It takes no lock.
func Open(files disk.FileSystem, path string) (disk.File, error) {
	return disk.Or(files).OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// OpenExclusive opens the lock file and takes an Exclusive lock of it, or returns ErrHeld. The file is the one at the path: if another
// process removed or replaced it between the opening and the locking, the new one is locked.
func OpenExclusive(files disk.FileSystem, path string) (disk.File, error) {
	for {
		file, err := Open(files, path)
		if err != nil {
			return nil, err
		}
		if err := Try(file, Exclusive, Range{}); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if IsAt(file, path) {
			return file, nil
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
}

// Try takes the lock or returns ErrHeld. It never waits.
func Try(file disk.File, kind Kind, r Range) error {
	err := control(file, unix.F_OFD_SETLK, r.request(int16(kind)))
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return ErrHeld
	case err != nil:
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}

// Wait takes the lock of the whole file as soon as no other open file excludes it. It has no timeout: use it for locks that are held only
// for a few system calls.
func Wait(file disk.File, kind Kind) error {
	if err := control(file, unix.F_OFD_SETLKW, Range{}.request(int16(kind))); err != nil {
		return fmt.Errorf("wait for the lock of %s: %w", file.Name(), err)
	}
	return nil
}

// Release gives the lock of the range back. Closing the file does the same for all its ranges.
func Release(file disk.File, r Range) error {
	if err := control(file, unix.F_OFD_SETLK, r.request(unix.F_UNLCK)); err != nil {
		return fmt.Errorf("unlock %s: %w", file.Name(), err)
	}
	return nil
}

// IsHeld reports whether another open file holds a lock, of any kind, of the range. It takes none.
func IsHeld(file disk.File, r Range) (bool, error) {
	request := r.request(unix.F_WRLCK)
	if err := control(file, unix.F_OFD_GETLK, request); err != nil {
		return false, fmt.Errorf("read the lock of %s: %w", file.Name(), err)
	}
	return request.Type != unix.F_UNLCK, nil
}

// IsHeldAt is IsHeld for the file at a path. A file that does not exist has no lock.
func IsHeldAt(path string, r Range) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	held, err := IsHeld(file, r)
	return held, errors.Join(err, file.Close())
}

// IsAt reports whether the open file is still the one at the path. A lock of a file that was removed or replaced excludes no process that
// opens the path later.
func IsAt(file disk.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}

func (r Range) request(kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Start: r.Start, Len: r.Length}
}

// control repeats a call that a signal interrupted: the Go runtime sends its own.
func control(file disk.File, command int, request *unix.Flock_t) error {
	for {
		err := unix.FcntlFlock(file.Fd(), command, request)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
