// Package driverimage builds driver images for nodes with Debian 12, with NVIDIA's real user space and kernel modules: NVIDIA publishes none. The files are
// those of Debian's packages, the entry point has the contract of NVIDIA's images. An image that compiles has the sources of the modules, a precompiled one
// the modules of one kernel, which are compiled here in the file system of the image that compiles. No module is loaded into this machine's kernel.
package driverimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// Name is the repository of the images: driver.image of a policy. Their tags are <version>-debian12, and <branch>-<kernel>-debian12 if precompiled.
const Name = "localhost/tessera/nvidia-driver"

// Host is the operating system of the nodes, as the discovery reports it.
const Host = "debian12"

// Types are the types of kernel modules, in the words of KERNEL_MODULE_TYPE.
func Types() []string { return []string{"proprietary", "open"} }

// Modules are the kernel modules of a driver in the images.
func Modules() []string { return []string{"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-peermem"} }

// Want selects what to build. Its zero value is everything.
type Want struct {
	// Version is the version of the driver, or its beginning; by default both that Debian has.
	Version string
	// Type is one of Types; by default all.
	Type string
	// Kernel is the release of the kernel of precompiled images; by default the newest cloud kernel of Debian 12.
	Kernel string
	// Precompiled leaves out the images that compile.
	Precompiled bool
}

// Image is a built image.
type Image struct {
	// Archive is the path of its OCI archive, Tag its tag.
	Archive, Tag string
}

// Driver is a driver of which images are built.
type Driver struct {
	Version string
	// User is the root of its user space, Sources the root with the sources of its modules, where Debian's packages for DKMS have them.
	User, Sources string
}

// branch is the beginning of the version.
func (d Driver) branch() string {
	branch, _, _ := strings.Cut(d.Version, ".")
	return branch
}

// builder has the parts of the images in a folder of the cache.
type builder struct {
	folder string
	// out has the modules and the archives. headers has the headers of kernels, unpacked; without it, they are those of Debian's archive.
	out, headers string
	// kernel is the release of the kernel for which modules are compiled.
	kernel  string
	drivers []Driver
	types   []string
}

// newBuilder downloads what is missing in the cache.
func newBuilder(ctx context.Context, want Want, progress io.Writer) (builder, error) {
	cache, err := binaries.DefaultCache()
	if err != nil {
		return builder{}, err
	}
	b := builder{folder: filepath.Join(cache, "driverimage"), kernel: want.Kernel, types: Types()}
	b.out = b.folder
	if want.Type != "" {
		if b.types = []string{want.Type}; !slices.Contains(Types(), want.Type) {
			return builder{}, fmt.Errorf("type %q: must be one of %s", want.Type, strings.Join(Types(), ", "))
		}
	}
	roots := filepath.Join(cache, "driver")
	if err := runScript(ctx, progress, "e2e/tests/driver/packages.sh", roots); err != nil {
		return builder{}, err
	}
	if err := runScript(ctx, progress, "e2e/env/driverimage/packages.sh", b.folder); err != nil {
		return builder{}, err
	}
	if b.kernel == "" {
		text, err := os.ReadFile(filepath.Join(b.folder, "kernel"))
		if err != nil {
			return builder{}, err
		}
		b.kernel = strings.TrimSpace(string(text))
	}
	libraries, err := filepath.Glob(filepath.Join(roots, "*/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.*.*"))
	if err != nil {
		return builder{}, err
	}
	for _, library := range libraries {
		_, version, _ := strings.Cut(filepath.Base(library), ".so.")
		release, _, _ := strings.Cut(strings.TrimPrefix(library, roots+"/"), "/")
		if strings.HasPrefix(version, want.Version) {
			b.drivers = append(b.drivers, Driver{version, filepath.Join(roots, release), filepath.Join(b.folder, "sources", release)})
		}
	}
	if len(b.drivers) == 0 {
		return builder{}, fmt.Errorf("find driver %s among those of Debian: none of %d", want.Version, len(libraries))
	}
	return b, nil
}

func runScript(ctx context.Context, progress io.Writer, script, folder string) error {
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, filepath.Join(source, script), folder)
	c.Stdout, c.Stderr = progress, progress
	if err := c.Run(); err != nil {
		return fmt.Errorf("run %s: %w", script, err)
	}
	return nil
}

// Build builds images into the cache and returns them, and prints the progress. Modules that are in the cache are not compiled again. It needs root,
// mmdebstrap and Debian's archive. Processes that build wait for each other.
func Build(ctx context.Context, want Want, progress io.Writer) ([]Image, error) {
	return withBuilder(ctx, want, progress, func(b builder) ([]Image, error) {
		var images []Image
		for _, d := range b.drivers {
			made, err := b.images(ctx, d, want.Precompiled, progress)
			if err != nil {
				return nil, err
			}
			images = append(images, made...)
		}
		return images, nil
	})
}

// Precompiled builds the images of another driver, for kernels whose headers are in a folder, into the folder out. Like Build, it waits for other processes.
func Precompiled(ctx context.Context, d Driver, kernels []string, headers, out string, progress io.Writer) ([]Image, error) {
	return withBuilder(ctx, Want{Type: Types()[0]}, progress, func(b builder) ([]Image, error) {
		b.out, b.headers = out, headers
		var images []Image
		for _, b.kernel = range kernels {
			made, err := b.images(ctx, d, true, progress)
			if err != nil {
				return nil, err
			}
			images = append(images, made...)
		}
		return images, nil
	})
}

// Compiling builds the image of another driver that compiles its modules on the node, into the folder out. Like Build, it waits for other processes.
func Compiling(ctx context.Context, d Driver, out string, progress io.Writer) (Image, error) {
	images, err := withBuilder(ctx, Want{Type: Types()[0]}, progress, func(b builder) ([]Image, error) {
		b.out = out
		v, err := compiling(d)
		if err != nil {
			return nil, err
		}
		made, err := b.archive(d, v)
		return []Image{made}, err
	})
	if err != nil {
		return Image{}, err
	}
	return images[0], nil
}

// withBuilder lets use build images while no other process does.
func withBuilder(ctx context.Context, want Want, progress io.Writer, use func(builder) ([]Image, error)) ([]Image, error) {
	cache, err := binaries.DefaultCache()
	if err != nil {
		return nil, err
	}
	unlock, err := binaries.Lock(filepath.Join(cache, "driverimage.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeLeftovers(filepath.Join(cache, "driverimage")); err != nil {
		return nil, err
	}
	b, err := newBuilder(ctx, want, progress)
	if err != nil {
		return nil, err
	}
	return use(b)
}

// images builds the images of a driver for one kernel.
func (b builder) images(ctx context.Context, d Driver, precompiledOnly bool, progress io.Writer) ([]Image, error) {
	for _, kind := range b.types {
		if err := b.compile(ctx, d, kind, progress); err != nil {
			return nil, fmt.Errorf("compile the %s modules of driver %s for kernel %s: %w", kind, d.Version, b.kernel, err)
		}
	}
	return b.write(d, precompiledOnly)
}

// removeLeftovers removes what processes left that were killed while they compiled.
func removeLeftovers(folder string) error {
	left, err := filepath.Glob(filepath.Join(folder, scratchPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}
