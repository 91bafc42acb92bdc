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

// Driver is one installed driver as a container needs it. Lists are in a fixed order and free of
// duplicates.
type Driver struct {
	// Version is the loaded kernel module's version, such as 580.65.06. Every library is of it.
	Version string
	// Libraries are the shared libraries, Links the links beside them, Folders the container folders
	// in which the dynamic linker must look for them.
	Libraries []File
	Links     []Link
	Folders   []string
	// Programs are the driver's tools that exist, Firmware the GSP images, Settings the ICD and
	// vendor files of graphics and compute loaders.
	Programs []File
	Firmware []File
	Settings []File
	// Sockets are the sockets that a container may talk to. The fabric manager's is never one.
	Sockets []File
	// Dev is the host path of the folder with the device nodes, Control are those that every container
	// with a GPU needs.
	Dev     string
	Control []Node
	// Majors are the character devices by name, as the kernel lists them.
	Majors map[string]uint32
	// Capabilities are the minor numbers of the MIG capabilities by the kernel's name for them, such
	// as gpu0/gi3/ci0/access. Empty on a driver without MIG.
	Capabilities map[string]uint32
}

// File is a file of the driver.
type File struct {
	// Host is the path on the host with every link resolved.
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

// ErrNotLoaded says that the node has no loaded driver.
var ErrNotLoaded = errors.New("no driver is loaded")

// Scan reads the driver. What every container needs and is not there is an error that names the path;
// it wraps ErrNotLoaded when there is no driver at all.
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

// version returns the version of the loaded kernel module. Its line in the version file names the
// module first; the version is the first field that is a number with dots.
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
