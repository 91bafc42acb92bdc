package host

import (
	"fmt"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Roots are the paths under which this process accesses parts of the host: absolute paths in its own mount namespace.
type Roots struct {
	// Host is the host's root: "/", or a mount such as "/host".
	Host string
	// Proc and Sys are the host's procfs and sysfs. Sys includes efivarfs.
	Proc string
	Sys  string
	// Dev is the folder whose dev subfolder has the device nodes.
	Dev string
	// Driver is the host path of a driver container's root, such as /run/nvidia/driver.
	Driver string
}

// See returns the path under which this process accesses a path of the host. Symbolic links are resolved relative to the host's root. The last
// element need not exist.
func (r Roots) See(hostPath string) (string, error) {
	seen, err := securejoin.SecureJoin(r.Host, hostPath)
	if err != nil {
		return "", fmt.Errorf("resolve %s under %s: %w", hostPath, r.Host, err)
	}
	return seen, nil
}

// OnHost returns the host path for a path of this process.
func (r Roots) OnHost(seen string) string {
	if rest, ok := strings.CutPrefix(seen, strings.TrimSuffix(r.Host, "/")); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join("/", rest)
	}
	return seen
}

// Below reports whether a path is the folder or is below it.
func Below(path, folder string) bool {
	folder = strings.TrimSuffix(filepath.Clean(folder), "/")
	return path == folder || strings.HasPrefix(path, folder+"/")
}
