package driverroot

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Roots are the paths of the parts of the host: absolute paths in the mount namespace of this process.
type Roots struct {
	// Host is the host's root: "/", or a mount such as "/host".
	Host string
	// Proc and Sys are the host's procfs and sysfs.
	Proc string
	Sys  string
	// Driver is the root of the driver's file tree. If it is empty, each call determines it: /run/nvidia/driver if a
	// driver container has its libraries there, else the host's root.
	Driver string
	// Dev is the folder whose subfolder dev has the device nodes. If it is empty, each call determines it: the driver's
	// root if it has a dev, else the host's.
	Dev string
}

// containerDriver is the host path of the root of a driver container.
const containerDriver = "/run/nvidia/driver"

// See returns the path of this process for a host path. Links are followed as on the host. The last element need not
// exist.
func (r Roots) See(hostPath string) (string, error) {
	seen, err := securejoin.SecureJoin(r.Host, hostPath)
	if err != nil {
		return "", fmt.Errorf("resolve %s under %s: %w", hostPath, r.Host, err)
	}
	return seen, nil
}

// Library returns the path, in this process, of the driver's libnvidia-ml.so.1, with all links resolved. It returns an
// error while there is none. It may be called every few seconds.
func (r Roots) Library() (string, error) {
	root, err := r.driver()
	if err != nil {
		return "", err
	}
	file, ok := root.nvml()
	if !ok {
		return "", fmt.Errorf("%s: %w in %s and the linker's cache under %s", nvmlName, fs.ErrNotExist, strings.Join(libraryFolders, ", "), root.host)
	}
	return r.See(file.Host)
}

// Program returns the path, in this process, of one of the driver's programs, such as nvidia-smi. It returns an error
// while there is none.
func (r Roots) Program(name string) (string, error) { return r.find(tree.programFolders, name) }

// ModuleRoots returns the roots, in this process, in which modprobe finds the driver's modules: the driver's root, where a driver container has
// built or unpacked them, then the host's. The driver containers of NVIDIA load modules in that order too (nvidia-driver,
// "chroot /run/nvidia/driver modprobe nvidia-peermem").
func (r Roots) ModuleRoots() ([]string, error) {
	root, err := r.driver()
	if err != nil {
		return nil, err
	}
	return slices.Compact([]string{filepath.Clean(root.seen), filepath.Clean(r.Host)}), nil
}

// DaemonFolder returns the path, in this process, of the folder with the socket of one of the driver's daemons, such as nvidia-persistenced. It returns
// an error while the daemon does not run.
func (r Roots) DaemonFolder(daemon string) (string, error) {
	socket, err := r.find(func(tree) []string { return socketFolders }, daemon+"/socket")
	return filepath.Dir(socket), err
}

// find returns the path, in this process, of the file in the first of the folders of the driver's tree that has it.
func (r Roots) find(of func(tree) []string, name string) (string, error) {
	root, err := r.driver()
	if err != nil {
		return "", err
	}
	folders := of(root)
	file, ok := root.first(folders, name)
	if !ok {
		return "", fmt.Errorf("%s: %w in %s under %s", name, fs.ErrNotExist, strings.Join(folders, ", "), root.host)
	}
	return r.See(file.Host)
}

// onHost returns the host path of a path of this process.
func (r Roots) onHost(path string) string {
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(r.Host, "/")); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join("/", rest)
	}
	return path
}

// tree is the driver's file tree. Absolute links in it lead to its own root, as for the programs of a driver container;
// a tree at "/" is the host itself.
type tree struct {
	// seen is the root of the tree as a path of this process, host the same on the host.
	seen string
	host string
}

// driver returns the tree of the driver.
func (r Roots) driver() (tree, error) {
	if r.Driver != "" {
		return r.tree(r.onHost(r.Driver))
	}
	if t, err := r.tree(containerDriver); err == nil {
		if _, ok := t.nvml(); ok {
			return t, nil
		}
	}
	return r.tree("/")
}

func (r Roots) tree(hostPath string) (tree, error) {
	seen, err := r.See(hostPath)
	if err != nil {
		return tree{}, err
	}
	if _, err := os.Stat(seen); err != nil {
		return tree{}, fmt.Errorf("read driver root %s: %w", hostPath, err)
	}
	return tree{seen: seen, host: r.onHost(seen)}, nil
}

// dev returns the host path of the folder with the device nodes, for a driver with the tree.
func (r Roots) dev(root tree) string {
	if r.Dev != "" {
		return filepath.Join(r.onHost(r.Dev), "dev")
	}
	if _, err := root.resolve("/dev"); err == nil {
		return filepath.Join(root.host, "dev")
	}
	return "/dev"
}

// resolve returns the path, inside the tree, of the file that path leads to, with all links resolved. The error wraps
// fs.ErrNotExist if there is none.
func (t tree) resolve(path string) (string, error) {
	seen, err := securejoin.SecureJoin(t.seen, path)
	if err != nil {
		return "", fmt.Errorf("resolve %s under %s: %w", path, t.host, err)
	}
	if _, err := os.Lstat(seen); err != nil {
		return "", err
	}
	return filepath.Join("/", strings.TrimPrefix(seen, filepath.Clean(t.seen))), nil
}

// file returns the file that the path leads to; a container gets it at its resolved path.
func (t tree) file(path string) (File, error) {
	resolved, err := t.resolve(path)
	if err != nil {
		return File{}, err
	}
	return File{Host: filepath.Join(t.host, resolved), Path: path}, nil
}

// first returns the file below the first of the folders that has it, and whether any has.
func (t tree) first(folders []string, name string) (File, bool) {
	for _, folder := range folders {
		if file, err := t.file(filepath.Join(folder, name)); err == nil {
			return file, true
		}
	}
	return File{}, false
}

// folder is a folder of the tree with its resolved path.
type folder struct {
	path    string
	entries []os.DirEntry
}

// folders returns the paths that exist, each resolved folder once, in the order given.
func (t tree) folders(paths ...string) []folder {
	var found []folder
	for _, path := range paths {
		resolved, err := t.resolve(path)
		if err != nil || slices.ContainsFunc(found, func(f folder) bool { return f.path == resolved }) {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(t.seen, resolved))
		if err != nil {
			continue
		}
		found = append(found, folder{path: resolved, entries: entries})
	}
	return found
}

// match returns the files of the folder whose names match one of the patterns, ordered by name, each with its resolved
// path.
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
		resolved, err := t.resolve(filepath.Join(f.path, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("follow %s: %w", filepath.Join(t.host, f.path, entry.Name()), err)
		}
		files = append(files, File{Host: filepath.Join(t.host, resolved), Path: resolved})
	}
	return files, nil
}
