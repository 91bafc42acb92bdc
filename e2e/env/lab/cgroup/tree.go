package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is the set of groups with one name in every hierarchy of the host.
type Tree struct {
	hierarchies []Hierarchy
	name        string
}

// Of returns the tree with the name, which need not exist. The name is a relative path.
func Of(name string) (Tree, error) {
	hierarchies, err := mounted()
	return Tree{hierarchies: hierarchies, name: name}, err
}

func mounted() ([]Hierarchy, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find the control groups: %w", err)
	}
	return Hierarchies(string(mountinfo)), nil
}

// Add creates the tree where it is missing and adds a process to it.
func (t Tree) Add(pid int) error {
	for _, h := range t.hierarchies {
		dir := filepath.Join(h.Path, t.name)
		if err := h.makeAll(dir); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	return nil
}

// makeAll creates dir and its parents below the hierarchy's root, each ready to contain processes or groups.
func (h Hierarchy) makeAll(dir string) error {
	relative, err := filepath.Rel(h.Path, dir)
	if err != nil {
		return err
	}
	parent := h.Path
	for _, element := range strings.Split(relative, "/") {
		if h.Unified {
			delegate(parent)
		}
		child := filepath.Join(parent, element)
		if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if h.cpuset() {
			if err := inherit(parent, child); err != nil {
				return err
			}
		}
		parent = child
	}
	return nil
}

// inherit copies the CPUs and memory nodes of a v1 cpuset group.
func inherit(parent, child string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, file), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// Remove kills every process in the tree and removes the tree. An absent tree is not an error.
func (t Tree) Remove(ctx context.Context) error {
	for _, h := range t.hierarchies {
		if err := remove(ctx, filepath.Join(h.Path, t.name)); err != nil {
			return fmt.Errorf("remove control group: %w", err)
		}
	}
	return nil
}

// remove retries until the kernel releases the last process: a terminated process stays in its group for a short time.
func remove(ctx context.Context, dir string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := removeOnce(dir)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// removeOnce kills the processes in the groups and removes the groups, deepest first.
func removeOnce(dir string) error {
	groups, err := below(dir)
	if err != nil {
		return err
	}
	var busy error
	for _, group := range slices.Backward(groups) {
		if err := kill(group); err != nil {
			return err
		}
		if err := unix.Rmdir(group); err != nil && !errors.Is(err, unix.ENOENT) {
			busy = fmt.Errorf("%s: %w", group, err)
		}
	}
	return busy
}

// below lists dir and all groups in it, parents first.
func below(dir string) ([]string, error) {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	return groups, err
}

// kill ends the processes of one group. Membership in the group shows that they are the lab's, even if a PID was
// reused.
func kill(group string) error {
	text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
