package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// kernel models control groups and the driver's accounting of GPU memory: kernel/cgroup/dmem.c of Linux, memacct.c of NVIDIA's open kernel modules. It is safe for
// concurrent use.
type kernel struct {
	mu         sync.Mutex
	controller gpu.Limiter
	// hierarchy is the folder of the groups, of which the limiter reads cgroup.controllers.
	hierarchy string
	groups    map[string]*group
	// free are the addresses of removed groups. misc identifies groups by their address, which a new group reuses, and keeps their limits.
	free    []int
	next    int
	entries map[int]map[string]uint64
}

// group is one control group: limits of dmem, and what its processes have allocated, by GPU.
type group struct {
	address    int
	controlled bool
	limits     map[string]uint64
	used       map[string]uint64
}

var (
	errNoGroup      = errors.New("no such control group")
	errNoController = errors.New("the controller is not enabled")
	errBelowUse     = errors.New("the limit is below what is allocated")
)

func newKernel(hierarchy string, controller gpu.Limiter) *kernel {
	return &kernel{controller: controller, hierarchy: hierarchy, groups: map[string]*group{}, entries: map[int]map[string]uint64{}}
}

// mkdir makes a group, with the controllers that a runtime enables: runc all, crun neither misc nor dmem.
func (k *kernel) mkdir(path string, controlled bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := &group{address: k.next, controlled: controlled, limits: map[string]uint64{}, used: map[string]uint64{}}
	if last := len(k.free) - 1; last >= 0 {
		g.address, k.free = k.free[last], k.free[:last]
	} else {
		k.next++
	}
	k.groups[path] = g
	text := "cpu memory pids"
	if controlled {
		text += " misc dmem"
	}
	folder := filepath.Join(k.hierarchy, path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "cgroup.controllers"), []byte(text+"\n"), 0o600)
}

// rmdir removes a group whose processes have ended.
func (k *kernel) rmdir(path string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = append(k.free, k.groups[path].address)
	delete(k.groups, path)
	return os.RemoveAll(filepath.Join(k.hierarchy, path))
}

// at returns the group of a folder.
func (k *kernel) at(folder string) (*group, error) {
	path, err := filepath.Rel(k.hierarchy, folder)
	if err != nil {
		return nil, err
	}
	g, known := k.groups["/"+path]
	if !known {
		return nil, errNoGroup
	}
	return g, nil
}

// set sets a limit as nvmlDeviceSetMemoryLimits_v1 does. With dmem, one below what is allocated succeeds and changes nothing; with misc, a group without the
// controller has a limit that never binds.
func (k *kernel) set(gpuName, folder string, bytes uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, err := k.at(folder)
	switch {
	case err != nil:
		return err
	case k.controller == gpu.LimitedByMisc && bytes < g.used[gpuName]:
		return errBelowUse
	case k.controller == gpu.LimitedByMisc:
		if k.entries[g.address] == nil {
			k.entries[g.address] = map[string]uint64{}
		}
		k.entries[g.address][gpuName] = bytes
	case !g.controlled:
		return errNoController
	case bytes >= g.used[gpuName]:
		g.limits[gpuName] = bytes
	}
	return nil
}

// get returns the limit as nvmlDeviceGetMemoryLimits_v1 does.
func (k *kernel) get(gpuName, folder string) (limit, used uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, err := k.at(folder)
	if err != nil {
		return 0, 0, err
	}
	return k.limitOf(g, gpuName), g.used[gpuName], nil
}

func (k *kernel) limitOf(g *group, gpuName string) uint64 {
	limits := g.limits
	if k.controller == gpu.LimitedByMisc {
		limits = k.entries[g.address]
	}
	if bytes, has := limits[gpuName]; has {
		return bytes
	}
	return gpu.NoMemoryLimit
}

// binding returns what a process of the group can have of the GPU.
func (k *kernel) binding(path, gpuName string) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bindingOf(k.groups[path], gpuName)
}

func (k *kernel) bindingOf(g *group, gpuName string) uint64 {
	if !g.controlled {
		return gpu.NoMemoryLimit
	}
	return k.limitOf(g, gpuName)
}

// allocate allocates memory for a process of the group, unless the limit refuses it.
func (k *kernel) allocate(path, gpuName string, bytes uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[path]
	if g.used[gpuName]+bytes <= k.bindingOf(g, gpuName) {
		g.used[gpuName] += bytes
	}
}

// used returns what the group has allocated of the GPU.
func (k *kernel) used(path, gpuName string) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.groups[path].used[gpuName]
}

// readBack returns an error unless the limit is that of the group.
func (k *kernel) readBack(gpuName, folder string, bytes uint64) error {
	if limit, _, err := k.get(gpuName, folder); err != nil || limit != bytes {
		return fmt.Errorf("not in effect: %w", errors.Join(err, errBelowUse))
	}
	return nil
}
