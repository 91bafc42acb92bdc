package driverroot

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Node is a character device in a container. It is described completely, because the host has no node of it in general: the driver's modules
// create none, and a driver container lacks nvidia-modprobe, which creates them elsewhere.
type Node struct {
	// Path is the path in the container.
	Path         string
	Major, Minor uint32
}

// Access is the owner and the permission bits of the driver's nodes.
type Access struct {
	UID, GID uint32
	Mode     fs.FileMode
}

// control are the nodes that belong to no GPU, with the names that their driver may have in /proc/devices: the first
// that is listed is used. The minor numbers are constants of the driver (nv.h, uvm_common.h and nvkms of the open kernel modules).
var control = []struct {
	name     string
	minor    uint32
	drivers  []string
	optional bool
}{
	{name: "nvidiactl", minor: 255, drivers: frontend},
	{name: "nvidia-uvm", drivers: []string{uvm}},
	{name: "nvidia-uvm-tools", minor: 1, drivers: []string{uvm}},
	// Drivers before 550 list all their nodes under one name.
	{name: "nvidia-modeset", minor: 254, drivers: []string{"nvidia-modeset", "nvidia-frontend"}, optional: true},
}

// frontend are the names of the driver of GPUs and of nvidiactl: drivers before 550 used the first.
var frontend = []string{"nvidia-frontend", "nvidia"}

const (
	uvm          = "nvidia-uvm"
	capabilities = "nvidia-caps"
)

func (d *Driver) addDevices(root tree, roots Roots) (err error) {
	if err = d.readNumbers(roots); err != nil {
		return err
	}
	d.Dev = roots.dev(root)
	d.Control, err = d.controlNodes()
	return err
}

// readNumbers reads from procfs what describes the driver's nodes: their numbers, owner and permission bits.
func (d *Driver) readNumbers(roots Roots) (err error) {
	if d.Majors, err = roots.majors(); err != nil {
		return err
	}
	if d.Capabilities, err = roots.capabilities(); err != nil {
		return err
	}
	d.Access, err = roots.access()
	return err
}

// controlNodes returns the nodes that belong to no GPU.
func (d Driver) controlNodes() ([]Node, error) {
	var nodes []Node
	for _, c := range control {
		node, err := d.node(c.name, c.minor, c.drivers)
		switch {
		case err == nil:
			nodes = append(nodes, node)
		case !c.optional:
			return nil, err
		}
	}
	return nodes, nil
}

// GPU returns the node of the GPU with the minor number, which is NVML's.
func (d Driver) GPU(minor int) (Node, error) {
	return d.node("nvidia"+strconv.Itoa(minor), uint32(minor), frontend)
}

// OwnNodes are the nodes that a process on the host opens to use the driver.
type OwnNodes struct {
	// Nodes are those of control, the present GPUs, and the capabilities to configure and to monitor MIG. They are incomplete while Missing is set.
	Nodes  []Node
	Access Access
	// Missing is the module whose numbers the kernel does not list; empty if none is missing.
	Missing string
}

// OwnNodes reads the nodes from procfs. Without a loaded driver there are none. The GPUs are those in /proc/driver/nvidia/gpus.
func (r Roots) OwnNodes() (OwnNodes, error) {
	var driver Driver
	if err := driver.readNumbers(r); err != nil {
		return OwnNodes{}, err
	}
	if !slices.ContainsFunc(frontend, func(name string) bool { _, ok := driver.Majors[name]; return ok }) {
		return OwnNodes{}, nil
	}
	if _, loaded := driver.Majors[uvm]; !loaded {
		return OwnNodes{Missing: uvm}, nil
	}
	control, err := driver.controlNodes()
	if err != nil {
		return OwnNodes{}, err
	}
	own := OwnNodes{Nodes: control, Access: driver.Access}
	minors, err := r.minors()
	if err != nil {
		return OwnNodes{}, err
	}
	for _, minor := range minors {
		node, err := driver.GPU(minor)
		if err != nil {
			return OwnNodes{}, err
		}
		own.Nodes = append(own.Nodes, node)
	}
	for _, name := range []string{"config", "monitor"} {
		if node, err := driver.Capability(name); err == nil { // a driver without MIG has none
			own.Nodes = append(own.Nodes, node)
		}
	}
	return own, nil
}

// Device returns a device node of the host that is not NVIDIA's, by its name below dev. The error wraps fs.ErrNotExist
// if there is none.
func (r Roots) Device(name string) (File, error) {
	root, err := r.driver()
	if err != nil {
		return File{}, err
	}
	file := File{Host: filepath.Join(r.dev(root), name), Path: filepath.Join("/dev", name)}
	seen, err := r.See(file.Host)
	if err != nil {
		return File{}, err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(seen, &stat); err != nil {
		return File{}, fmt.Errorf("stat device node %s: %w", file.Host, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return File{}, fmt.Errorf("device node %s: not a character device", file.Host)
	}
	return file, nil
}

// Capability returns the node that opens a MIG capability, by its name in the kernel.
func (d Driver) Capability(name string) (Node, error) {
	major, ok := d.Majors[capabilities]
	if !ok {
		return Node{}, fmt.Errorf("MIG capability %s: %s is not among the kernel's character devices", name, capabilities)
	}
	minor, ok := d.Capabilities[name]
	if !ok {
		return Node{}, fmt.Errorf("MIG capability %s: not among the kernel's MIG minors", name)
	}
	return Node{Path: fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor), Major: major, Minor: minor}, nil
}

// node returns a node of the first of the drivers that the kernel lists.
func (d Driver) node(name string, minor uint32, drivers []string) (Node, error) {
	for _, driver := range drivers {
		if major, listed := d.Majors[driver]; listed {
			return Node{Path: filepath.Join("/dev", name), Major: major, Minor: minor}, nil
		}
	}
	module := drivers[len(drivers)-1]
	return Node{}, fmt.Errorf("device node /dev/%s: %s is not among the kernel's character devices: load it with modprobe %s on the node", name, module, module)
}

// majors reads the character devices in /proc/devices: major numbers by name.
func (r Roots) majors() (map[string]uint32, error) {
	path := filepath.Join(r.Proc, "devices")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the kernel's devices: %w", err)
	}
	majors := map[string]uint32{}
	characters, _, _ := strings.Cut(string(text), "Block devices:")
	for line := range strings.Lines(characters) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		major, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			continue
		}
		majors[fields[1]] = uint32(major)
	}
	return majors, nil
}

// capabilities reads the table of MIG minors: a name and a number per line. A driver without MIG has no table.
func (r Roots) capabilities() (map[string]uint32, error) {
	path := filepath.Join(r.Proc, "driver/nvidia-caps/mig-minors")
	file, err := os.Open(path)
	switch {
	case os.IsNotExist(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the MIG minors: %w", err)
	}
	defer file.Close()
	minors := map[string]uint32{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, number, ok := strings.Cut(lines.Text(), " ")
		minor, err := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("read the MIG minors: %s: line %q is not a name and a number", path, lines.Text())
		}
		minors[name] = uint32(minor)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the MIG minors: %w", err)
	}
	return minors, nil
}
