package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// mountSpace is the space in bytes required at the driver container's root on the host: it is a mount point and has a few small files.
const mountSpace = 1 << 20

// Look reads the input of Check. Scratch is a folder in this process's mount namespace whose file system stores the driver's files: a container's own
// root, because the runtime stores those of all containers in one place.
func Look(r host.Roots, scratch string) (Seen, error) {
	var seen Seen
	kernel, err := survey.Kernel(r)
	if err != nil {
		return Seen{}, err
	}
	seen.Kernel = kernel
	system, err := survey.OS(r)
	if err != nil {
		return Seen{}, err
	}
	seen.OS = system.Tag
	if seen.SecureBoot, err = survey.SecureBoot(r); err != nil {
		return Seen{}, err
	}
	if seen.HostDriver, err = survey.HostDriver(r); err != nil {
		return Seen{}, err
	}
	modules, err := survey.Modules(r)
	if err != nil {
		return Seen{}, err
	}
	seen.Nouveau = references(modules, "nouveau")
	if seen.Headers, err = headers(r, seen.Kernel); err != nil {
		return Seen{}, err
	}
	seen.Disks, err = disks(r, scratch)
	return seen, err
}

// headers reports whether the host has the headers of a kernel. Without them, build is a dangling symbolic link on some distributions.
func headers(r host.Roots, kernel string) (bool, error) {
	build, err := r.See(filepath.Join("/lib/modules", kernel, "build"))
	if err != nil {
		return false, err
	}
	for _, file := range []string{"Makefile", "include"} {
		if _, err := os.Stat(filepath.Join(build, file)); err != nil {
			return false, nil //nolint:nilerr // what cannot be seen cannot be compiled with
		}
	}
	return true, nil
}

func disks(r host.Roots, scratch string) ([]Disk, error) {
	free, err := freeBelow(scratch)
	if err != nil {
		return nil, err
	}
	found := []Disk{{Path: "the file system of container images", Free: free}}
	if r.Driver == "" {
		return found, nil
	}
	seen, err := r.See(r.Driver)
	if err != nil {
		return nil, err
	}
	if free, err = freeBelow(seen); err != nil {
		return nil, err
	}
	return append(found, Disk{Path: "the file system of " + r.Driver, Free: free, Need: mountSpace}), nil
}

// freeBelow returns the bytes available to root at the path, or at its nearest existing parent.
func freeBelow(path string) (uint64, error) {
	for {
		var stat unix.Statfs_t
		err := unix.Statfs(path, &stat)
		if err == nil {
			return stat.Bavail * uint64(stat.Bsize), nil //nolint:gosec // block sizes are positive
		}
		if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
			path = parent
			continue
		}
		return 0, fmt.Errorf("read the free space at %s: %w", path, err)
	}
}
