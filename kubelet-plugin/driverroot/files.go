package driverroot

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

var (
	programFolders = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	programs       = []string{
		"nvidia-smi",
		"nvidia-debugdump",
		"nvidia-persistenced",
		"nvidia-cuda-mps-control",
		"nvidia-cuda-mps-server",
		"nvidia-imex",
		"nvidia-imex-ctl",
		"nvidia-xconfig",
	}
)

// settings are files that loaders read. Each is read from the first of settingFolders that has it and mounted below at.
// Some managed platforms have them at the root of the driver's tree.
var (
	settingFolders = []string{"/etc", "/usr/local/share", "/usr/share", "/"}
	settings       = []struct{ at, name string }{
		{"/usr/share", "glvnd/egl_vendor.d/10_nvidia.json"},
		{"/usr/share", "egl/egl_external_platform.d/15_nvidia_gbm.json"},
		{"/usr/share", "egl/egl_external_platform.d/10_nvidia_wayland.json"},
		{"/usr/share", "egl/egl_external_platform.d/09_nvidia_wayland2.json"},
		{"/usr/share", "egl/egl_external_platform.d/20_nvidia_xcb.json"},
		{"/usr/share", "egl/egl_external_platform.d/20_nvidia_xlib.json"},
		{"/usr/share", "nvidia/nvoptix.bin"},
		{"/usr/share", "X11/xorg.conf.d/10-nvidia.conf"},
		{"/usr/share", "X11/xorg.conf.d/nvidia-drm-outputclass.conf"},
		{"/etc", "OpenCL/vendors/nvidia.icd"},
		{"/etc", "vulkan/icd.d/nvidia_icd.json"},
		{"/etc", "vulkan/icd.d/nvidia_icd.x86_64.json"},
		{"/etc", "vulkan/icd.d/nvidia_icd.aarch64.json"},
		{"/etc", "vulkan/icd.d/nvidia_layers.json"},
		{"/etc", "vulkan/implicit_layer.d/nvidia_layers.json"},
	}
)

// The persistence daemon's socket is the only one that a container may have: with the fabric manager's a tenant could
// repartition the node, and an MPS daemon's belongs to the claims that it serves.
var (
	socketFolders = []string{"/run", "/var/run"}
	sockets       = []string{"nvidia-persistenced/socket"}
)

// addFiles adds the files that are optional: a missing one is not an error.
func (d *Driver) addFiles(root tree, roots Roots) error {
	folders := root.programFolders()
	for _, name := range programs {
		if file, ok := root.first(folders, name); ok {
			d.Programs = append(d.Programs, file)
		}
	}
	for _, s := range settings {
		if file, ok := root.first(settingFolders, s.name); ok {
			d.Settings = append(d.Settings, File{Host: file.Host, Path: path.Join(s.at, s.name)})
		}
	}
	for _, name := range sockets {
		if file, ok := root.first(socketFolders, name); ok {
			d.Sockets = append(d.Sockets, file)
		}
	}
	firmware, err := roots.firmwareFolders(root)
	if err != nil {
		return err
	}
	for _, f := range root.folders(join(firmware, path.Join("nvidia", d.Version))...) {
		files, err := root.match(f, "gsp*.bin", "ucodes*.bin")
		if err != nil {
			return err
		}
		d.Firmware = append(d.Firmware, files...)
	}
	d.Firmware = distinct(d.Firmware, func(f File) string { return f.Path })
	return nil
}

// firmwareFolders returns the folders in which the kernel looks for firmware, in its order: the folder of the kernel
// parameter, if set, then the standard ones.
func (r Roots) firmwareFolders(root tree) ([]string, error) {
	release, err := os.ReadFile(filepath.Join(r.Proc, "sys/kernel/osrelease"))
	if err != nil {
		return nil, fmt.Errorf("read the kernel's release: %w", err)
	}
	kernel := strings.TrimSpace(string(release))
	folders := []string{
		path.Join("/lib/firmware/updates", kernel),
		"/lib/firmware/updates",
		path.Join("/lib/firmware", kernel),
		"/lib/firmware",
	}
	// The parameter is absent if the kernel was built without it.
	if text, err := os.ReadFile(filepath.Join(r.Sys, "module/firmware_class/parameters/path")); err == nil {
		if set := strings.TrimSpace(string(text)); set != "" {
			folders = append([]string{strings.TrimPrefix(set, strings.TrimSuffix(root.host, "/"))}, folders...)
		}
	}
	return folders, nil
}
