package survey

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/internal/host/smi"
)

// SMI returns the driver's nvidia-smi: that of the driver container if it exists, otherwise the host's.
func SMI(r host.Roots) (smi.Program, error) {
	for _, root := range []string{r.Driver, "/"} {
		seen, err := r.See(root)
		if err != nil {
			return smi.Program{}, err
		}
		path, library := inRoot(seen, programFolders, "nvidia-smi"), inRoot(seen, libraryFolders, "libnvidia-ml.so.1")
		if path != "" && library != "" {
			return smi.Program{Path: path, Library: library}, nil
		}
	}
	return smi.Program{}, fmt.Errorf("find nvidia-smi with libnvidia-ml.so.1 below %s or in the host's root: %w", r.Driver, fs.ErrNotExist)
}

// inRoot returns the file of that name in the first folder that has it. Absolute symbolic links resolve relative to that root, as for the programs of
// a driver container.
func inRoot(root string, folders []string, name string) string {
	for _, folder := range folders {
		seen, err := securejoin.SecureJoin(root, filepath.Join(folder, name))
		if err != nil || !strings.HasPrefix(seen, strings.TrimSuffix(root, "/")) {
			continue
		}
		if _, err := os.Stat(seen); err == nil {
			return seen
		}
	}
	return ""
}
