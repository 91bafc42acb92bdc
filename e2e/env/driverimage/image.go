package driverimage

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// variant is one of the two kinds of images: its userland, its tag, and the layer with the modules or their sources.
type variant struct {
	userland, tag string
	files         []oci.File
}

// write writes the archives of a driver: that of the image that compiles, and that of the precompiled one with all types that are in the cache.
func (b builder) write(d Driver, precompiledOnly bool) ([]Image, error) {
	precompiled, err := b.precompiled(d)
	if err != nil {
		return nil, err
	}
	variants := []variant{precompiled}
	if !precompiledOnly {
		compiling, err := compiling(d)
		if err != nil {
			return nil, err
		}
		variants = append(variants, compiling)
	}
	var images []Image
	for _, v := range variants {
		made, err := b.archive(d, v)
		if err != nil {
			return nil, err
		}
		images = append(images, made)
	}
	return images, nil
}

// precompiled has the modules of the driver for the builder's kernel.
func (b builder) precompiled(d Driver) (variant, error) {
	modules, err := oci.Tree(filepath.Join(b.out, "modules", d.Version), func(name string) string {
		if kernel, below := strings.CutPrefix("/"+name, modulesPath+"/"); below && !strings.HasPrefix(kernel+"/", b.kernel+"/") {
			return ""
		}
		return name
	})
	return variant{"run", strings.Join([]string{d.branch(), b.kernel, Host}, "-"), modules}, err
}

// compiling has the sources of the driver's modules.
func compiling(d Driver) (variant, error) {
	sources, err := oci.Tree(d.Sources, func(name string) string {
		if strings.HasPrefix(name, "usr") {
			return name
		}
		return ""
	})
	return variant{"build", d.Version + "-" + Host, sources}, err
}

// archive writes the archive of an image.
func (b builder) archive(d Driver, v variant) (Image, error) {
	user, err := userSpace(d)
	if err != nil {
		return Image{}, err
	}
	userland, err := oci.Tree(filepath.Join(b.folder, v.userland), withoutState)
	if err != nil {
		return Image{}, err
	}
	image := oci.Image{
		Name: Name + ":" + v.tag, Architecture: "amd64", Layers: [][]oci.File{userland, user, v.files}, Entrypoint: []string{"nvidia-driver", "init"},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DRIVER_VERSION=" + d.Version},
	}
	made := Image{Archive: filepath.Join(b.out, "nvidia-driver-"+v.tag+".tar"), Tag: v.tag}
	return made, oci.WriteArchive(made.Archive, image)
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
