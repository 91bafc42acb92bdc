package atomicfile

import (
	"io"
	"io/fs"
	"os"
)

// FileSystem is the part of a file system that this package uses. The methods behave like the functions of package os. Tests inject
// faults through it.
type FileSystem interface {
	OpenFile(path string, flag int, mode fs.FileMode) (File, error)
	Rename(from, to string) error
	Remove(path string) error
}

// File is an open file or folder of a FileSystem. Its methods behave like those of os.File.
type File interface {
	io.Writer
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
	Sync() error
	Close() error
}

// hostFS is the file system of this process.
type hostFS struct{}

func (hostFS) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err // a nil *os.File in an interface is not nil
	}
	return file, nil
}

func (hostFS) Rename(from, to string) error { return os.Rename(from, to) }

func (hostFS) Remove(path string) error { return os.Remove(path) }
