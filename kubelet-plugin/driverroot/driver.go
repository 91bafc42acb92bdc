package driverroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Driver is the parts of an installed driver that a container needs. Lists have a fixed order and no duplicates.
type Driver struct {
	// Version is the version of the loaded kernel module, such as 580.65.06. Every library has this version, except
	// those with their own.
	Version string
	// Libraries are the shared libraries, Links the links to them, Folders the folders in the container that the dynamic
	// linker must search.
	Libraries []File
	Links     []Link
	Folders   []string
	// Programs are the driver's tools, Firmware the GSP images, Settings the ICD and vendor files of graphics and
	// compute loaders. Each has only the existing files.
	Programs []File
	Firmware []File
	Settings []File
	// Sockets are the sockets that a container may use. The fabric manager's is never one of them.
	Sockets []File
	// Dev is the host path of the folder in which Extra searches device nodes first. Control are the nodes that every
	// container with a GPU needs, Access the owner and permission bits of all nodes of the driver.
	Dev     string
	Control []Node
	Access  Access
	// Majors are the major numbers of character devices, by name in /proc/devices.
	Majors map[string]uint32
	// Capabilities are the minor numbers of the MIG capabilities, by name in the kernel, such as gpu0/gi3/ci0/access.
	// Empty for a driver without MIG.
	Capabilities map[string]uint32
}

// File is a file of the driver.
type File struct {
	// Host is the path on the host with all links resolved.
	Host string
	// Path is the path in the container.
	Path string
}

// Link is a symbolic link in the container.
type Link struct {
	// Target is the text of the link, relative to its folder.
	Target string
	// Path is the path of the link in the container.
	Path string
}

// ErrNotLoaded means that the node has no loaded driver.
var ErrNotLoaded = errors.New("no driver is loaded")

// Scan reads the driver. The error names the path of a required part that is missing, and wraps ErrNotLoaded if no
// driver is loaded.
func Scan(roots Roots) (Driver, error) {
	version, err := roots.version()
	if err != nil {
		return Driver{}, err
	}
	root, err := roots.driver()
	if err != nil {
		return Driver{}, err
	}
	driver := Driver{Version: version}
	if err := driver.addLibraries(root); err != nil {
		return Driver{}, err
	}
	if err := driver.addFiles(root, roots); err != nil {
		return Driver{}, err
	}
	if err := driver.addDevices(root, roots); err != nil {
		return Driver{}, err
	}
	return driver, nil
}

var versionNumber = regexp.MustCompile(`^\d+\.\d+(\.\d+)?$`)

// version returns the version of the loaded kernel module: the first field of the module's line in the version file that
// is a number with dots.
func (r Roots) version() (string, error) {
	path := filepath.Join(r.Proc, "driver/nvidia/version")
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: %w", ErrNotLoaded, err)
	case err != nil:
		return "", fmt.Errorf("read the loaded driver's version: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "NVRM version:")
		if !ok {
			continue
		}
		for _, field := range strings.Fields(rest) {
			if versionNumber.MatchString(field) {
				return field, nil
			}
		}
	}
	return "", fmt.Errorf("read the loaded driver's version: no version in %s", path)
}
