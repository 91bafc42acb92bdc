package driverroot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Roots say where the parts of the host are found.
type Roots struct {
	// Host is where this process sees the host's file system: "/", or a mount such as "/host".
	Host string
	// Driver is the host path of the tree in which the driver is installed: "/", or
	// "/run/nvidia/driver" for a driver in a container.
	Driver string
	// Dev is the host path of the folder that holds nvidiactl, nvidia0 and so on: "/dev".
	Dev string
	// Proc and Sys are the procfs and the sysfs as this process sees them: "/proc", "/sys".
	Proc string
	Sys  string
}

// See returns the path under which this process sees a host path. Links on the way are followed as
// the host follows them. The last element need not exist.
func (r Roots) See(hostPath string) (string, error) {
	seen, err := securejoin.SecureJoin(r.Host, hostPath)
	if err != nil {
		return "", fmt.Errorf("resolve %s under %s: %w", hostPath, r.Host, err)
	}
	return seen, nil
}

// tree is the driver's file tree. Absolute links in it lead to its own root, as they do for the
// programs of a driver container; a tree at "/" is the host itself.
type tree struct {
	// seen is the root of the tree as this process sees it, host the same on the host.
	seen string
	host string
}

func (r Roots) driver() (tree, error) {
	seen, err := r.See(r.Driver)
	if err != nil {
		return tree{}, err
	}
	if _, err := os.Stat(seen); err != nil {
		return tree{}, fmt.Errorf("read driver root %s: %w", r.Driver, err)
	}
	return tree{seen: seen, host: filepath.Join("/", strings.TrimPrefix(seen, filepath.Clean(r.Host)))}, nil
}

// real returns the path, inside the tree, of what path leads to once every link is followed. It
// wraps fs.ErrNotExist when that is nothing.
func (t tree) real(path string) (string, error) {
	seen, err := securejoin.SecureJoin(t.seen, path)
	if err != nil {
		return "", fmt.Errorf("resolve %s under %s: %w", path, t.host, err)
	}
	if _, err := os.Lstat(seen); err != nil {
		return "", err
	}
	return filepath.Join("/", strings.TrimPrefix(seen, filepath.Clean(t.seen))), nil
}

// file returns the file that the path leads to, to be found in a container under the same path.
func (t tree) file(path string) (File, error) {
	real, err := t.real(path)
	if err != nil {
		return File{}, err
	}
	return File{Host: filepath.Join(t.host, real), Path: path}, nil
}

// first returns the file below the first of the folders that has it, if any has.
func (t tree) first(folders []string, name string) (File, bool) {
	for _, folder := range folders {
		if file, err := t.file(filepath.Join(folder, name)); err == nil {
			return file, true
		}
	}
	return File{}, false
}

// folder is a folder of the tree under its real path.
type folder struct {
	path    string
	entries []os.DirEntry
}

// folders returns those of the paths that exist, each real folder once, in the order given.
func (t tree) folders(paths ...string) []folder {
	var found []folder
	for _, path := range paths {
		real, err := t.real(path)
		if err != nil || slices.ContainsFunc(found, func(f folder) bool { return f.path == real }) {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(t.seen, real))
		if err != nil {
			continue
		}
		found = append(found, folder{path: real, entries: entries})
	}
	return found
}

// match returns the files of the folder whose names match one of the patterns, by name, each under
// its real path.
func (t tree) match(f folder, patterns ...string) ([]File, error) {
	var files []File
	for _, entry := range f.entries {
		matches := func(pattern string) bool {
			ok, err := filepath.Match(pattern, entry.Name())
			return err == nil && ok
		}
		if entry.IsDir() || !slices.ContainsFunc(patterns, matches) {
			continue
		}
		real, err := t.real(filepath.Join(f.path, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("follow %s: %w", filepath.Join(t.host, f.path, entry.Name()), err)
		}
		files = append(files, File{Host: filepath.Join(t.host, real), Path: real})
	}
	return files, nil
}
