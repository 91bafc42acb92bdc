package host

import (
	"fmt"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Roots say where this process sees the parts of the host: absolute paths in its own mount namespace.
type Roots struct {
	// Host is the host's root: "/", or a mount such as "/host".
	Host string
	// Proc and Sys are the host's procfs and sysfs; Sys with efivarfs in it.
	Proc string
	Sys  string
	// Dev is the folder whose dev holds the device nodes.
	Dev string
	// Driver is where a driver container shows its root, as the host names it, such as /run/nvidia/driver.
	Driver string
}

// See returns the path under which this process sees a path of the host. Links on the way are followed as the host follows them. The last
// element need not exist.
func (r Roots) See(hostPath string) (string, error) {
	seen, err := securejoin.SecureJoin(r.Host, hostPath)
	if err != nil {
		return "", fmt.Errorf("resolve %s under %s: %w", hostPath, r.Host, err)
	}
	return seen, nil
}

// OnHost returns the host's path of what this process sees at the path.
func (r Roots) OnHost(seen string) string {
	if rest, ok := strings.CutPrefix(seen, strings.TrimSuffix(r.Host, "/")); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join("/", rest)
	}
	return seen
}

// Below reports whether a host's path is the folder or lies below it.
func Below(path, folder string) bool {
	folder = strings.TrimSuffix(filepath.Clean(folder), "/")
	return path == folder || strings.HasPrefix(path, folder+"/")
}
