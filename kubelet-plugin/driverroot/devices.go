package driverroot

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Node is a character device.
type Node struct {
	File
	Major, Minor uint32
}

// control are the nodes that belong to no GPU, with the names that their driver may have in /proc/devices: the first
// that is listed is used.
var control = []struct {
	name     string
	drivers  []string
	optional bool
}{
	{name: "nvidiactl", drivers: frontend},
	{name: "nvidia-uvm", drivers: []string{"nvidia-uvm"}},
	{name: "nvidia-uvm-tools", drivers: []string{"nvidia-uvm"}, optional: true},
	{name: "nvidia-modeset", drivers: []string{"nvidia-modeset", "nvidia-frontend", "nvidia"}, optional: true},
}

// frontend are the names of the driver of GPUs and of nvidiactl: drivers before 550 used the first.
var frontend = []string{"nvidia-frontend", "nvidia"}

const capabilities = "nvidia-caps"

func (d *Driver) addDevices(root tree, roots Roots) (err error) {
	if d.Majors, err = roots.majors(); err != nil {
		return err
	}
	if d.Capabilities, err = roots.capabilities(); err != nil {
		return err
	}
	d.Dev = roots.dev(root)
	for _, c := range control {
		node, err := d.node(roots, c.name, c.drivers)
		switch {
		case err == nil:
			d.Control = append(d.Control, node)
		case !c.optional:
			return err
		}
	}
	return nil
}

// GPU returns the present device node of the GPU with the minor number. The error names the path that is missing or
// wrong.
func (r Roots) GPU(driver Driver, minor int) (Node, error) {
	return driver.node(r, "nvidia"+strconv.Itoa(minor), frontend)
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

// Capability returns the node that opens a MIG capability, by its name in the kernel. The node need not exist on the
// host: its numbers are sufficient.
func (d Driver) Capability(name string) (Node, error) {
	major, ok := d.Majors[capabilities]
	if !ok {
		return Node{}, fmt.Errorf("MIG capability %s: %s is not among the kernel's character devices", name, capabilities)
	}
	minor, ok := d.Capabilities[name]
	if !ok {
		return Node{}, fmt.Errorf("MIG capability %s: not among the kernel's MIG minors", name)
	}
	path := fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor)
	return Node{File: File{Host: path, Path: path}, Major: major, Minor: minor}, nil
}

// node returns a device node of the host after a check that it belongs to the driver: a node that outlived a reload of
// its module has a number that is unassigned or belongs to another driver.
func (d Driver) node(roots Roots, name string, drivers []string) (Node, error) {
	host := filepath.Join(d.Dev, name)
	seen, err := roots.See(host)
	if err != nil {
		return Node{}, err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(seen, &stat); err != nil {
		return Node{}, fmt.Errorf("stat device node %s: %w: create it with nvidia-modprobe", host, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return Node{}, fmt.Errorf("device node %s: not a character device", host)
	}
	node := Node{
		File:  File{Host: host, Path: filepath.Join("/dev", name)},
		Major: unix.Major(stat.Rdev),
		Minor: unix.Minor(stat.Rdev),
	}
	i := slices.IndexFunc(drivers, func(driver string) bool { _, ok := d.Majors[driver]; return ok })
	if i < 0 {
		return Node{}, fmt.Errorf("device node %s: %s is not among the kernel's character devices: load its module", host, drivers[len(drivers)-1])
	}
	if want := d.Majors[drivers[i]]; node.Major != want {
		return Node{}, fmt.Errorf("device node %s: has major %d, the kernel's %s has %d: recreate the node", host, node.Major, drivers[i], want)
	}
	return node, nil
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
