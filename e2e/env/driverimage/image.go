package driverimage

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// write writes the archives of a driver: that of the image that compiles, and that of the precompiled one with all types that are in the cache.
func (b builder) write(d Driver, precompiledOnly bool) ([]Image, error) {
	user, err := userSpace(d)
	if err != nil {
		return nil, err
	}
	modules, err := oci.Tree(filepath.Join(b.out, "modules", d.Version), func(name string) string {
		if kernel, below := strings.CutPrefix("/"+name, modulesPath+"/"); below && !strings.HasPrefix(kernel+"/", b.kernel+"/") {
			return ""
		}
		return name
	})
	if err != nil {
		return nil, err
	}
	sources, err := oci.Tree(d.Sources, func(name string) string {
		if strings.HasPrefix(name, "usr") {
			return name
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	var images []Image
	for _, variant := range []struct {
		userland, tag string
		files         []oci.File
	}{
		{"run", strings.Join([]string{d.branch(), b.kernel, Host}, "-"), modules},
		{"build", d.Version + "-" + Host, sources},
	} {
		if precompiledOnly && variant.userland == "build" {
			continue
		}
		userland, err := oci.Tree(filepath.Join(b.folder, variant.userland), withoutState)
		if err != nil {
			return nil, err
		}
		image := oci.Image{
			Name: Name + ":" + variant.tag, Architecture: "amd64", Layers: [][]oci.File{userland, user, variant.files}, Entrypoint: []string{"nvidia-driver", "init"},
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DRIVER_VERSION=" + d.Version},
		}
		made := Image{Archive: filepath.Join(b.out, "nvidia-driver-"+variant.tag+".tar"), Tag: variant.tag}
		if err := oci.WriteArchive(made.Archive, image); err != nil {
			return nil, err
		}
		images = append(images, made)
	}
	return images, nil
}

// withoutState leaves out what a container runtime mounts and what apt and dpkg write when they install.
func withoutState(name string) string {
	for _, folder := range []string{"dev", "proc", "sys", "var/cache", "var/log", "var/lib/apt/lists"} {
		if strings.HasPrefix(name, folder+"/") {
			return ""
		}
	}
	return name
}

// userSpace returns the layer of the driver's files and the entry point. The userland's /lib is a link to /usr/lib. The firmware is at another path than
// Debian's: driver pods mount a folder of the node at /lib/firmware, into which the entry point copies it.
func userSpace(d Driver) ([]oci.File, error) {
	files, err := oci.Tree(d.User, func(name string) string {
		if strings.HasPrefix(name, "lib/") {
			name = "usr/" + name
		}
		if firmware, found := strings.CutPrefix(name, "usr/lib/firmware/nvidia"); found {
			return "opt/nvidia/firmware" + firmware
		}
		if slices.Contains([]string{"complete", "lib", "usr/lib/firmware"}, name) {
			return ""
		}
		return name
	})
	return append(files, oci.File{Path: entryPath, Content: entryPoint, Mode: 0o755}), err
}
