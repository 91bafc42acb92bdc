package driverroot

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// nvmlName is the name under which programs load NVML.
const nvmlName = "libnvidia-ml.so.1"

// nvml returns the driver's NVML, and whether there is one: in the first library folder that has it, else where the dynamic linker of the tree finds it.
func (t tree) nvml() (File, bool) {
	if file, ok := t.first(libraryFolders, nvmlName); ok {
		return file, true
	}
	for _, path := range t.linked(nvmlName) {
		if file, err := t.file(path); err == nil {
			return file, true
		}
	}
	return File{}, false
}

// ownFolder returns the folder of the tree that NVML is in, with all links resolved. It is not one of the library folders if the driver has a
// separate folder, such as /usr/local/nvidia/lib64 or /opt/nvidia/lib. It is empty without NVML.
func (t tree) ownFolder() string {
	nvml, ok := t.nvml()
	if !ok {
		return ""
	}
	inTree, err := filepath.Rel(t.host, nvml.Host)
	if err != nil {
		return ""
	}
	return path.Dir(path.Join("/", inTree))
}

// libraryFolders returns the folders that can have the driver's libraries, in order of preference.
func (t tree) libraryFolders() []string {
	if own := t.ownFolder(); own != "" {
		return append(slices.Clone(libraryFolders), own)
	}
	return libraryFolders
}

// programFolders returns the folders that can have the driver's programs, in order of preference. A driver in a separate folder has them in the bin
// next to its libraries, and what has their names elsewhere can be a script that only works there.
func (t tree) programFolders() []string {
	if own := t.ownFolder(); own != "" {
		return append([]string{path.Join(path.Dir(own), "bin")}, programFolders...)
	}
	return programFolders
}

// maxLinkerCache bounds in bytes what is read of a linker's cache: that of a large distribution has 300 KiB.
const maxLinkerCache = 4 << 20

// linked returns the paths to which the dynamic linker of the tree resolves the name.
func (t tree) linked(name string) []string {
	resolved, err := t.resolve("/etc/ld.so.cache")
	if err != nil {
		return nil
	}
	fd, err := unix.Open(filepath.Join(t.seen, resolved), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // a pipe must not block
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), resolved)
	defer file.Close() //nolint:errcheck // it was only read
	cache, err := io.ReadAll(io.LimitReader(file, maxLinkerCache))
	if err != nil {
		return nil
	}
	return ldso.Find(cache, name, map[string]ldso.ABI{"amd64": ldso.X8664, "arm64": ldso.AArch64}[runtime.GOARCH])
}
