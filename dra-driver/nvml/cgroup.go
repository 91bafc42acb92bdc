package nvml

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/internal/host/cgroup"
)

// cgroups is where this process finds control groups of version 2.
type cgroups struct {
	// hierarchy is the folder of the host's hierarchy; empty if no limits are set.
	hierarchy string
	// own is the folder of this process's group; empty if it has none below the root.
	own string
}

func newCgroups(hierarchy string) cgroups {
	c := cgroups{hierarchy: hierarchy}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return c
	}
	path, ok := cgroup.Unified(string(text))
	// In a cgroup namespace, the path and the second folder are those of the namespace.
	for _, top := range []string{hierarchy, "/sys/fs/cgroup"} {
		folder := filepath.Join(top, path)
		if _, err := os.Stat(filepath.Join(folder, "cgroup.type")); ok && top != "" && err == nil {
			c.own = folder
			break
		}
	}
	return c
}

// has reports whether this process's group has the controller.
func (c cgroups) has(controller string) bool {
	text, err := os.ReadFile(filepath.Join(c.own, "cgroup.controllers"))
	return c.own != "" && err == nil && slices.Contains(strings.Fields(string(text)), controller)
}

// regions returns whether the driver has regions of memory in the controller dmem (Linux, Documentation/admin-guide/cgroup-v2.rst, DMEM).
func (c cgroups) regions() bool {
	text, err := os.ReadFile(filepath.Join(c.hierarchy, "dmem.capacity"))
	return err == nil && strings.Contains("\n"+string(text), "\nnvidia/")
}
