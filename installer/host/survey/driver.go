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

// LoadedDriver returns the version of the NVIDIA modules that are loaded, from the procfs file driver/nvidia/version; empty: none. Its line
// names the module first, and the version is the first field that is a number with dots.
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

// HostDriver returns the version of the driver that the host itself brings: that of its libnvidia-ml, when it has nvidia-smi as well. Empty:
// none. What leads into the root of a driver container is not the host's. Without modules it is a driver all the same: the host
// may load them at its next start.
func HostDriver(r host.Roots) (string, error) {
	program, err := firstOf(r, programFolders, "nvidia-smi")
	if err != nil || program == "" {
		return "", err
	}
	return firstOf(r, libraryFolders, "libnvidia-ml.so.*")
}

// firstOf returns what follows the first match's ".so.", or the match when there is no such part; of links to the same library the version
// is what counts.
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

// own returns the version of a library, or the path of a program, that is the host's own.
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

// Contained reports whether what this process sees at the path belongs to a driver container.
func Contained(r host.Roots, seen string) bool {
	return r.Driver != "" && r.Driver != "/" && host.Below(r.OnHost(seen), r.Driver)
}
