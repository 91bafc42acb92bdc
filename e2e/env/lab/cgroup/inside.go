package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// View is the machine's view of the host's control groups: the machine's own group is the root of each hierarchy.
type View struct{ hierarchies []Hierarchy }

// Host reads the hierarchies of the host. It must be called before Mount, while they are still visible.
func Host() (View, error) {
	hierarchies, err := mounted()
	return View{hierarchies}, err
}

// Hybrid reports whether there are hierarchies of both versions.
func (v View) Hybrid() bool {
	unified := func(h Hierarchy) bool { return h.Unified }
	return slices.ContainsFunc(v.hierarchies, unified) && slices.ContainsFunc(v.hierarchies, func(h Hierarchy) bool { return !h.Unified })
}

// Mount replaces the host's hierarchies below root with those of the current cgroup namespace. root must be a copy in
// the current mount namespace.
func (v View) Mount(root string) error {
	for _, h := range v.hierarchies {
		kind, target := "cgroup", filepath.Join(root, h.Path)
		if h.Unified {
			kind = "cgroup2"
		}
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("hide the host's control groups at %s: %w", target, err)
		}
		if err := unix.Mount(kind, target, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, strings.Join(h.Options, ",")); err != nil {
			return fmt.Errorf("mount control groups on %s: %w", target, err)
		}
	}
	return nil
}

// Settle moves the current process, the machine's first one, out of the root of v2: a group that contains processes
// cannot delegate controllers to its child groups.
func (v View) Settle() error {
	for _, h := range v.hierarchies {
		if !h.Unified {
			continue
		}
		system := filepath.Join(h.Path, "system")
		if err := os.MkdirAll(system, 0o755); err != nil {
			return fmt.Errorf("settle in control group: %w", err)
		}
		if err := os.WriteFile(filepath.Join(system, "cgroup.procs"), []byte("0"), 0); err != nil { // 0: the writing process
			return fmt.Errorf("settle in control group: %w", err)
		}
		delegate(h.Path)
	}
	return nil
}

// delegate enables the controllers that kubelet and runc use for the children of dir. Controllers that the host lacks
// or has bound to v1 are skipped.
func delegate(dir string) {
	for _, controller := range []string{"cpu", "cpuset", "io", "memory", "pids", "hugetlb"} {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
}
