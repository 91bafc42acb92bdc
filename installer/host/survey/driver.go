package survey

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
)

var versionNumber = regexp.MustCompile(`^\d+\.\d+(\.\d+)?$`)

// LoadedDriver returns the version of the loaded NVIDIA modules from the procfs file driver/nvidia/version, or "" if none is loaded. The line starts
// with the module's name, and the version is the first field that is a dotted number.
func LoadedDriver(r host.Roots) (string, error) {
	path := filepath.Join(r.Proc, "driver/nvidia/version")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the loaded driver's version: %w", err)
	}
	for entry := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(entry, "NVRM version:")
		if !ok {
			continue
		}
		for field := range strings.FieldsSeq(rest) {
			if versionNumber.MatchString(field) {
				return field, nil
			}
		}
	}
	return "", fmt.Errorf("read the loaded driver's version: no version in %s", path)
}

var (
	libraryFolders = []string{
		"/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current",
		"/usr/lib/aarch64-linux-gnu/nvidia/current", "/usr/lib", "/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
		"/usr/lib/wsl/lib", "/opt/nvidia/lib64", "/run/nvidia-driver/lib64",
	}
	programFolders = []string{
		"/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/lib/wsl/lib", "/opt/nvidia/bin",
	}
)

// HostDriver returns the version of the host's own driver: that of its libnvidia-ml if nvidia-smi exists as well, otherwise "". Files in the root of
// a driver container are excluded. The driver also counts while its modules are not loaded, because the host may load them at the next boot.
func HostDriver(r host.Roots) (string, error) {
	program, err := firstOf(r, programFolders, "nvidia-smi")
	if err != nil || program == "" {
		return "", err
	}
	return firstOf(r, libraryFolders, "libnvidia-ml.so.*")
}

// firstOf returns the part after ".so." of the first match, or the match itself without such a part. For symbolic links the version of the target
// library counts.
func firstOf(r host.Roots, folders []string, pattern string) (string, error) {
	for _, folder := range folders {
		seen, err := r.See(folder)
		if err != nil {
			return "", err
		}
		matches, err := filepath.Glob(filepath.Join(seen, pattern))
		if err != nil {
			return "", err
		}
		for _, match := range matches {
			if name, ok := own(r, match); ok {
				return name, nil
			}
		}
	}
	return "", nil
}

// own returns the version of a library, or the path of a program, that belongs to the host itself.
func own(r host.Roots, match string) (string, bool) {
	resolved, err := r.See(r.OnHost(match))
	if err != nil {
		return "", false
	}
	if _, err := os.Stat(resolved); err != nil || Contained(r, resolved) {
		return "", false
	}
	_, version, library := strings.Cut(filepath.Base(resolved), ".so.")
	if !library {
		return resolved, true
	}
	return version, versionNumber.MatchString(version)
}

// Contained reports whether a path of this process belongs to a driver container.
func Contained(r host.Roots, seen string) bool {
	return r.Driver != "" && r.Driver != "/" && host.Below(r.OnHost(seen), r.Driver)
}
