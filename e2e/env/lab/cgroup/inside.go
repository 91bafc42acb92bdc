package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// View is the host's control groups as a machine shall see them: its own group is the root of each hierarchy.
type View struct{ hierarchies []Hierarchy }

// Host reads the hierarchies of the host. The machine calls it first, while it still sees them.
func Host() (View, error) {
	hierarchies, err := mounted()
	return View{hierarchies}, err
}

// Mount replaces the host's hierarchies below root, which must be a copy in our own mount namespace, by those of our own cgroup namespace.
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

// Settle moves us, the machine's first process, out of the root of v2: a group with processes can hand no controllers to the containers beside it.
func (v View) Settle() error {
	for _, h := range v.hierarchies {
		if !h.Unified {
			continue
		}
		system := filepath.Join(h.Path, "system")
		if err := os.MkdirAll(system, 0o755); err != nil {
			return fmt.Errorf("settle in control group: %w", err)
		}
		if err := os.WriteFile(filepath.Join(system, "cgroup.procs"), []byte("0"), 0); err != nil { // 0: whoever writes
			return fmt.Errorf("settle in control group: %w", err)
		}
		delegate(h.Path)
	}
	return nil
}

// delegate hands the controllers that kubelet and runc use to the children of dir. Those that the host lacks or has bound to v1 are left out.
func delegate(dir string) {
	for _, controller := range []string{"cpu", "cpuset", "io", "memory", "pids", "hugetlb"} {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
}
