package driverroot

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Extra is a group of device nodes that belong to no GPU, with their files.
type Extra struct {
	Nodes []File
	Files []File
}

// extraNodes is a pattern of device nodes below dev, with the name of their driver in /proc/devices; empty if the driver
// has no own entry there.
type extraNodes struct {
	pattern, driver string
}

// extraGroup is the content of an extra, with the remedy if the first of its nodes is missing.
type extraGroup struct {
	nodes  []extraNodes
	files  []string
	remedy string
}

func extraGroups() map[string]extraGroup {
	return map[string]extraGroup{
		"gds": {
			nodes: []extraNodes{{"nvidia-fs[0-9]*", "nvidia-fs"}}, files: []string{"/run/udev", "/etc/cufile.json"},
			remedy: "load the module nvidia-fs, as GPUDirect Storage in the ClusterPolicy does",
		},
		"gdrcopy": {nodes: []extraNodes{{"gdrdrv", "gdrdrv"}}, remedy: "load the module gdrdrv, as GDRCopy in the ClusterPolicy does"},
		"rdma": {
			nodes:  []extraNodes{{"infiniband/uverbs[0-9]*", ""}, {"infiniband/rdma_cm", ""}},
			remedy: "install the network adapters' driver",
		},
	}
}

// Extra returns the present nodes and files of the group with the name gds, gdrcopy or rdma. The error wraps
// fs.ErrNotExist if the host has no such device, and includes the remedy. Nodes are read from the folder of the driver's
// nodes, then from the host's /dev. It may be called for every claim.
func (r Roots) Extra(driver Driver, name string) (Extra, error) {
	group, ok := extraGroups()[name]
	if !ok {
		return Extra{}, fmt.Errorf("device group %q: unknown", name)
	}
	var err error
	if driver.Majors, err = r.majors(); err != nil { // modules may have been loaded since the driver was read
		return Extra{}, err
	}
	var found Extra
	for i, wanted := range group.nodes {
		nodes, err := r.extraNodes(driver, wanted)
		if err != nil {
			return Extra{}, fmt.Errorf("%s: %w", name, err)
		}
		if len(nodes) == 0 && i == 0 {
			return Extra{}, fmt.Errorf("%s: no /dev/%s on this node: %w: %s", name, wanted.pattern, fs.ErrNotExist, group.remedy)
		}
		found.Nodes = append(found.Nodes, nodes...)
	}
	for _, path := range group.files {
		seen, err := r.See(path)
		if err != nil {
			return Extra{}, err
		}
		if _, err := os.Stat(seen); err == nil {
			found.Files = append(found.Files, File{Host: path, Path: path})
		}
	}
	return found, nil
}

// extraNodes returns the nodes that match the pattern in the first folder that has any, ordered by name.
func (r Roots) extraNodes(driver Driver, wanted extraNodes) ([]File, error) {
	for _, dev := range slices.Compact([]string{driver.Dev, "/dev"}) {
		seen, err := r.See(dev)
		if err != nil {
			return nil, err
		}
		paths, err := filepath.Glob(filepath.Join(seen, wanted.pattern))
		if err != nil || len(paths) == 0 {
			continue
		}
		slices.Sort(paths)
		var nodes []File
		for _, path := range paths {
			name := strings.TrimPrefix(path, seen+"/")
			if err := driver.checkExtraNode(path, filepath.Join(dev, name), wanted.driver); err != nil {
				return nil, err
			}
			nodes = append(nodes, File{Host: filepath.Join(dev, name), Path: filepath.Join("/dev", name)})
		}
		return nodes, nil
	}
	return nil, nil
}

// checkExtraNode checks that the node is one of the kernel's driver: a node that outlived a reload of its module has a number that is unassigned
// or belongs to another driver.
func (d Driver) checkExtraNode(seen, host, driver string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(seen, &stat); err != nil {
		return fmt.Errorf("stat device node %s: %w", host, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return fmt.Errorf("device node %s: not a character device", host)
	}
	if driver == "" {
		return nil
	}
	want, ok := d.Majors[driver]
	if !ok {
		return fmt.Errorf("device node %s: %s is not among the kernel's character devices: load its module", host, driver)
	}
	if major := unix.Major(stat.Rdev); major != want {
		return fmt.Errorf("device node %s: has major %d, the kernel's %s has %d: recreate the node", host, major, driver, want)
	}
	return nil
}
