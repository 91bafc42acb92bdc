package driverroot

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// libraryFolders are the folders in which drivers install their libraries, in order of preference. Below nvidia/current they are on
// Debian, in /usr/lib on Arch and Bottlerocket, or there below nvidia/tesla before 580 (bottlerocket-kernel-kit 365), in
// /usr/local/glibc/usr/lib on Talos, and in /usr/local/lib there before 1.8 (siderolabs/extensions 385, 940). Others are found by the
// dynamic linker of the tree (tree.libraryFolders).
var libraryFolders = []string{
	"/usr/lib64",
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib/aarch64-linux-gnu",
	"/usr/lib/x86_64-linux-gnu/nvidia/current",
	"/usr/lib/aarch64-linux-gnu/nvidia/current",
	"/lib64",
	"/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu",
	"/lib/x86_64-linux-gnu/nvidia/current",
	"/lib/aarch64-linux-gnu/nvidia/current",
	"/usr/lib",
	"/usr/lib/nvidia/tesla",
	"/usr/local/glibc/usr/lib",
	"/usr/local/lib",
}

// ownVersion are the libraries of the driver that have their own version numbers.
var ownVersion = []string{
	"libnvidia-nvvm70.so.*",
	"libnvidia-egl-gbm.so.*.*",
	"libnvidia-egl-wayland.so.*.*",
	"libnvidia-egl-wayland2.so.*.*",
	"libnvidia-egl-xcb.so.*.*",
	"libnvidia-egl-xlib.so.*.*",
}

// xorgFolders have the driver's modules of the X server, below a library folder; xorgServerFolders are the server's own.
var (
	xorgFolders       = []string{"nvidia/xorg", "xorg/modules/drivers", "xorg/modules/extensions", "xorg/modules/updates/drivers", "xorg/modules/updates/extensions"}
	xorgServerFolders = []string{"/usr/lib", "/usr/lib64"}
)

// expected are links that programs require and that some installations lack.
var expected = []struct{ library, name, target string }{
	{"libcuda.so.", "libcuda.so", "libcuda.so.1"},
	{"libGLX_nvidia.so.", "libGLX_indirect.so.0", ""},
	{"libnvidia-opticalflow.so.", "libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"},
	{"libnvidia-vulkan-producer.so.", "libnvidia-vulkan-producer.so", ""},
	{"libnvidia-allocator.so.", "gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"},
}

// addLibraries adds every library with the driver's version, the libraries with their own versions, and the links to
// them.
func (d *Driver) addLibraries(root tree) error {
	folders := root.folders(root.libraryFolders()...)
	var found []folder
	for _, f := range folders {
		for _, f := range append([]folder{f}, root.folders(path.Join(f.path, "vdpau"))...) {
			files, err := root.match(f, append(ownVersion, "*.so."+d.Version)...)
			if err != nil {
				return err
			}
			if len(files) > 0 {
				d.Libraries = append(d.Libraries, files...)
				found = append(found, f)
			}
		}
	}
	for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		if _, ok := d.library(name); !ok {
			return fmt.Errorf("%s%s: %w in the library folders under %s: the versions of the installed driver and the loaded kernel module must match",
				name, d.Version, os.ErrNotExist, root.host)
		}
	}
	for _, f := range found {
		d.Folders = append(d.Folders, f.path)
	}
	modules, err := d.addModules(root, found)
	if err != nil {
		return err
	}
	d.Libraries = distinct(d.Libraries, func(f File) string { return f.Path })
	d.addLinks(root, append(found, modules...))
	return nil
}

// addModules adds the modules of the X server and returns their folders, which no linker searches.
func (d *Driver) addModules(root tree, libraries []folder) ([]folder, error) {
	var places []string
	for _, f := range libraries {
		places = append(places, f.path)
	}
	var found []folder
	for _, f := range root.folders(join(append(places, xorgServerFolders...), xorgFolders...)...) {
		files, err := root.match(f, "nvidia_drv.so", "libglxserver_nvidia.so."+d.Version)
		if err != nil {
			return nil, err
		}
		if len(files) > 0 {
			d.Libraries = append(d.Libraries, files...)
			found = append(found, f)
		}
	}
	return found, nil
}

// addLinks adds the links that lead to a library of the driver, from the folder of a library or its gbm folder, and the
// expected ones.
func (d *Driver) addLinks(root tree, folders []folder) {
	for _, f := range folders {
		for _, f := range append([]folder{f}, root.folders(path.Join(f.path, "gbm"))...) {
			for _, entry := range f.entries {
				if link, ok := d.link(root, path.Join(f.path, entry.Name()), entry); ok {
					d.Links = append(d.Links, link)
				}
			}
		}
	}
	for _, e := range expected {
		if library, ok := d.library(e.library); ok {
			target := cmp.Or(e.target, path.Base(library.Path))
			d.Links = append(d.Links, Link{Target: target, Path: path.Join(path.Dir(library.Path), e.name)})
		}
	}
	d.Links = distinct(d.Links, func(l Link) string { return l.Path })
}

// link returns the entry as a link, and whether it is one that leads to a library of the driver.
func (d *Driver) link(root tree, at string, entry os.DirEntry) (Link, bool) {
	if entry.Type()&os.ModeSymlink == 0 {
		return Link{}, false
	}
	library, err := root.resolve(at)
	if err != nil || !slices.ContainsFunc(d.Libraries, func(f File) bool { return f.Path == library }) {
		return Link{}, false
	}
	target, err := os.Readlink(filepath.Join(root.seen, at))
	if err != nil {
		return Link{}, false
	}
	if path.IsAbs(target) {
		if relative, err := filepath.Rel(path.Dir(at), library); err == nil {
			target = relative
		}
	}
	return Link{Target: target, Path: at}, true
}

// library returns the driver's own library with the name, which ends in ".so.".
func (d *Driver) library(name string) (File, bool) {
	i := slices.IndexFunc(d.Libraries, func(f File) bool { return path.Base(f.Path) == name+d.Version })
	if i < 0 {
		return File{}, false
	}
	return d.Libraries[i], true
}

// join returns every name below every folder.
func join(folders []string, names ...string) []string {
	var paths []string
	for _, folder := range folders {
		for _, name := range names {
			paths = append(paths, path.Join(folder, name))
		}
	}
	return paths
}

// distinct returns the items ordered by key, the first of every key.
func distinct[T any](items []T, key func(T) string) []T {
	slices.SortStableFunc(items, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return slices.CompactFunc(items, func(a, b T) bool { return key(a) == key(b) })
}
