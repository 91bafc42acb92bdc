package disk

import (
	"io"
	"io/fs"
	"os"
	"time"
)

// FileSystem changes files and folders. Its methods behave like the functions of package os. It is safe for concurrent use. A nil FileSystem in
// a configuration means Host; Or returns it.
type FileSystem interface {
	OpenFile(path string, flag int, mode fs.FileMode) (File, error)
	Mkdir(path string, mode fs.FileMode) error
	Rename(from, to string) error
	Remove(path string) error
	Chtimes(path string, accessed, modified time.Time) error
}

// File is an open file or folder of a FileSystem. Its methods behave like those of os.File.
type File interface {
	io.Writer
	io.WriterAt
	Truncate(size int64) error
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
	Sync() error
	Close() error
	Name() string
	Stat() (fs.FileInfo, error)
	Fd() uintptr
}

// Host is the FileSystem of this process.
type Host struct{}

// Or returns the file system, or Host for nil.
func Or(files FileSystem) FileSystem {
	if files == nil {
		return Host{}
	}
	return files
}

// OpenFile implements FileSystem.
func (Host) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err // a nil *os.File in an interface is not nil
	}
	return file, nil
}

// Mkdir implements FileSystem.
func (Host) Mkdir(path string, mode fs.FileMode) error { return os.Mkdir(path, mode) }

// Rename implements FileSystem.
func (Host) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FileSystem.
func (Host) Remove(path string) error { return os.Remove(path) }

// Chtimes implements FileSystem.
func (Host) Chtimes(path string, accessed, modified time.Time) error {
	return os.Chtimes(path, accessed, modified)
}
