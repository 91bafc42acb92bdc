package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Sys is a sysfs. Paths are below its root.
type Sys interface {
	// Read returns a file's text without the line end; it wraps fs.ErrNotExist.
	Read(path string) (string, error)
	// Write writes a text. It returns when the kernel has done what that asks for, with its refusal, or when ctx ends: then the kernel goes on by itself.
	Write(ctx context.Context, path, text string) error
	// Link returns the last element of what a link leads to; it wraps fs.ErrNotExist.
	Link(path string) (string, error)
	// List returns the names in a folder, in order; it wraps fs.ErrNotExist.
	List(path string) ([]string, error)
}

// Nodes are the device nodes of IOMMU groups.
type Nodes interface {
	// Check returns why a group cannot be used: nil, or an error that wraps fs.ErrNotExist when there is no node, or gpu.ErrBusy when somebody has it open. The
	// kernel opens a group for one program at a time.
	Check(group string) error
}

// Modules loads modules of the kernel.
type Modules interface {
	// Load loads a module with those that it needs. One that is loaded is no error.
	Load(ctx context.Context, module string) error
}

// Modprobe loads modules with the program of that name in a host's root, which knows the host's modules.
type Modprobe string

// Load loads a module.
func (m Modprobe) Load(ctx context.Context, module string) error {
	program := "/sbin/modprobe"
	if _, err := os.Stat(filepath.Join(string(m), program)); err != nil {
		program = "/usr/sbin/modprobe"
	}
	command := exec.CommandContext(ctx, program, module)
	command.WaitDelay = time.Second
	command.Dir = "/"
	if m != "/" {
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: string(m)}
	}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("modprobe %s: %w: %s", module, err, strings.Join(strings.Fields(string(output)), " "))
	}
	return nil
}

// Folder is a sysfs that is mounted at a path.
type Folder string

// Read returns a file's text.
func (f Folder) Read(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(f), path))
	return strings.TrimSpace(string(text)), err
}

// Write writes a text in one write(2), as sysfs wants it. The file is never made.
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
		return fmt.Errorf("write %s: the kernel has not answered: %w", path, context.Cause(ctx))
	}
}

// Link returns the last element of what a link leads to.
func (f Folder) Link(path string) (string, error) {
	target, err := os.Readlink(filepath.Join(string(f), path))
	return filepath.Base(target), err
}

// List returns the names in a folder.
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

// Dev is a folder whose dev holds device nodes.
type Dev string

// Check opens the node of a group, and closes it again.
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
