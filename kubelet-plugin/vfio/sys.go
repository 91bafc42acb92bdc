package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/modprobe"
)

// Sys is a sysfs. Paths are relative to its root.
type Sys interface {
	// Read returns a file's text without the line end. The error wraps fs.ErrNotExist if there is no file.
	Read(path string) (string, error)
	// Write writes a text. It returns when the kernel has completed the requested action, with the kernel's error, or
	// when ctx ends; the kernel then continues.
	Write(ctx context.Context, path, text string) error
	// Link returns the last element of a link's target. The error wraps fs.ErrNotExist if there is no link.
	Link(path string) (string, error)
	// List returns the names in a folder, in order. The error wraps fs.ErrNotExist if there is no folder.
	List(path string) ([]string, error)
}

// Nodes are the device nodes of IOMMU groups.
type Nodes interface {
	// Check returns nil if a group can be opened. The error wraps fs.ErrNotExist if there is no node, and gpu.ErrBusy if
	// a process has it open: the kernel opens a group for one process at a time.
	Check(group string) error
}

// Modules loads modules of the kernel.
type Modules interface {
	// Load loads a module with its dependencies. A loaded module is not an error.
	Load(ctx context.Context, module string) error
}

// Modprobe loads modules with the program modprobe in a host's root, which has the host's modules.
type Modprobe string

// Load loads a module with its dependencies.
func (m Modprobe) Load(ctx context.Context, module string) error {
	return modprobe.Load(ctx, module, string(m))
}

// Folder is a sysfs that is mounted at a path.
type Folder string

// Read returns a file's text without the line end.
func (f Folder) Read(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(f), path))
	return strings.TrimSpace(string(text)), err
}

// Write writes a text in one write(2), as sysfs requires. It never creates the file.
func (f Folder) Write(ctx context.Context, path, text string) error {
	done := make(chan error, 1)
	go func() {
		file, err := os.OpenFile(filepath.Join(string(f), path), os.O_WRONLY, 0)
		if err != nil {
			done <- err
			return
		}
		_, err = file.WriteString(text)
		done <- errors.Join(err, file.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write %s: the write has not returned: %w", path, context.Cause(ctx))
	}
}

// Link returns the last element of a link's target.
func (f Folder) Link(path string) (string, error) {
	target, err := os.Readlink(filepath.Join(string(f), path))
	return filepath.Base(target), err
}

// List returns the names in a folder, in order.
func (f Folder) List(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(string(f), path))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	slices.Sort(names)
	return names, nil
}

// Dev is a folder whose subfolder dev has the device nodes.
type Dev string

// Check opens the node of a group and closes it again.
func (d Dev) Check(group string) error {
	path := filepath.Join(string(d), "dev/vfio", group)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("open %s: %w", path, gpu.ErrBusy)
	case err != nil:
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return unix.Close(fd)
}
