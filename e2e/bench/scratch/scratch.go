// Package scratch creates temporary folders for the benches, one on disk and one on a file system in
// memory, and removes both.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Folder exists until Close.
type Folder struct {
	// Disk is in the system's folder of temporary files, Memory on a separate file system in memory
	// that allows device nodes and programs.
	Disk, Memory string
}

// New creates a folder. The paths are short: the names of sockets have at most 107 characters.
func New() (Folder, error) {
	disk, err := os.MkdirTemp("", "b")
	if err != nil {
		return Folder{}, fmt.Errorf("make a scratch folder: %w", err)
	}
	f := Folder{Disk: disk, Memory: filepath.Join(disk, "m")}
	if err := os.Mkdir(f.Memory, 0o700); err != nil {
		return Folder{}, errors.Join(err, os.RemoveAll(disk))
	}
	if err := unix.Mount("tmpfs", f.Memory, "tmpfs", 0, "mode=0755"); err != nil {
		return Folder{}, errors.Join(fmt.Errorf("mount a file system in memory: %w", err), os.RemoveAll(disk))
	}
	return f, nil
}

// Sub makes a folder in memory.
func (f Folder) Sub(name string) (string, error) {
	path := filepath.Join(f.Memory, name)
	return path, os.MkdirAll(path, 0o755)
}

// Close unmounts everything below the folder and removes it. No process may use it any more.
func (f Folder) Close() error {
	if err := unix.Unmount(f.Memory, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", f.Memory, err)
	}
	return os.RemoveAll(f.Disk)
}

// InMemory reports whether the path is on a file system in memory.
func InMemory(path string) (bool, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return false, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	return s.Type == unix.TMPFS_MAGIC, nil
}
