package cdi

import (
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
)

// The names of CDI devices: vendor/class=device. They are independent of the name of the DRA driver, which an
// administrator may choose.
const (
	vendor      = "gpu.tessera.dev"
	commonClass = "common"
	claimClass  = "claim"
	// commonDevice is the only device of the common spec.
	commonDevice = "driver"
)

// common returns the spec of the driver. program is the host path of the hook program.
//
// NVIDIA's container runtime, which may be the runtime of the node, must inject nothing. It reads what a container requests from NVIDIA_VISIBLE_DEVICES or,
// with accept-nvidia-visible-devices-as-volume-mounts, from the names of mounts of /dev/null below one folder, whatever else is mounted there. Both are
// edits of the device, because a device must have one.
func common(driver driverroot.Driver, program string) (*cdispec.Spec, error) {
	var edits cdispec.ContainerEdits
	for _, node := range driver.Control {
		edits.DeviceNodes = append(edits.DeviceNodes, deviceNode(node, driver.Access))
	}
	for _, files := range [][]driverroot.File{driver.Libraries, driver.Programs, driver.Firmware, driver.Settings} {
		for _, file := range files {
			edits.Mounts = append(edits.Mounts, mount(file, "ro", "nosuid", "nodev", "rbind", "rprivate"))
		}
	}
	for _, socket := range driver.Sockets {
		edits.Mounts = append(edits.Mounts, mount(socket, "nosuid", "nodev", "noexec", "rbind", "rprivate"))
	}
	edits.Hooks = hooks(driver, program)
	return versioned(cdispec.Spec{
		Kind:           vendor + "/" + commonClass,
		ContainerEdits: edits,
		Devices: []cdispec.Device{{
			Name: commonDevice,
			ContainerEdits: cdispec.ContainerEdits{
				Env: []string{"NVIDIA_VISIBLE_DEVICES=void"},
				Mounts: []*cdispec.Mount{
					mount(driverroot.File{Host: "/dev/null", Path: "/var/run/nvidia-container-devices/void"}, "ro", "nosuid", "nodev", "bind"),
				},
			},
		}},
	})
}

// hookTimeout is the time in seconds after which a runtime kills the hook and fails the container. The hook takes milliseconds; what it can wait for
// are the file systems of the image and of volumes, and an agent that limits memory.
const hookTimeout = 60

// hooks returns the single hook that makes all changes in a container before it starts.
func hooks(driver driverroot.Driver, program string) []*cdispec.Hook {
	args := []string{hook.Program, hook.All, "--host-driver-version", driver.Version}
	for _, link := range driver.Links {
		args = append(args, "--link", link.Target+"::"+link.Path)
	}
	for _, folder := range driver.Folders {
		args = append(args, "--folder", folder)
	}
	return []*cdispec.Hook{newHook("createContainer", program, args)}
}

// newHook returns a hook of the program. It has an environment, because a runtime gives a hook without one its own, which can have variables of the image.
func newHook(name, program string, args []string) *cdispec.Hook {
	timeout := hookTimeout
	return &cdispec.Hook{HookName: name, Path: program, Args: args, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Timeout: &timeout}
}

// deviceNode returns a node with its numbers: the runtime creates it even if the host has none.
func deviceNode(node driverroot.Node, access driverroot.Access) *cdispec.DeviceNode {
	spec := &cdispec.DeviceNode{
		Path:     node.Path,
		Type:     "c",
		Major:    int64(node.Major),
		Minor:    int64(node.Minor),
		FileMode: &access.Mode,
	}
	if access.UID != 0 {
		spec.UID = &access.UID
	}
	if access.GID != 0 {
		spec.GID = &access.GID
	}
	return spec
}

func mount(file driverroot.File, options ...string) *cdispec.Mount {
	return &cdispec.Mount{HostPath: file.Host, ContainerPath: file.Path, Options: options}
}

// versioned returns the spec with the oldest version that has all its fields: runtimes reject versions that are newer
// than theirs.
func versioned(spec cdispec.Spec) (*cdispec.Spec, error) {
	version, err := cdispec.MinimumRequiredVersion(&spec)
	if err != nil {
		return nil, err
	}
	spec.Version = version
	return &spec, nil
}
