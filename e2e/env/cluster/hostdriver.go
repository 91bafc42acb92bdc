package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// InstallHostDriver installs a driver on a bare node, as a package of its distribution does: files in its root, which
// persist with the node's disk, and modules, which are loaded until the next boot.
func (c *Cluster) InstallHostDriver(ctx context.Context, node, version string) error {
	n, err := c.Node(node)
	if err != nil {
		return err
	}
	const name = "package"
	root := filepath.Join(n.GPUFolder(), name)
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	if err := fakegpu.WriteDriver(ctx, root, version); err != nil {
		return fmt.Errorf("write driver %s: %w", version, err)
	}
	unpacked := filepath.Join(lab.GPUFolder, name)
	script := []string{
		"set -e",
		"cp -a " + unpacked + "/usr/. /usr/",
		"cp -a " + unpacked + "/lib/. /usr/lib/",
		"mount --bind " + fakegpu.BareState(lab.GPUFolder) + " /" + fakegpu.StateFile(version),
	}
	for _, module := range []fakegpu.Module{fakegpu.NVIDIA, fakegpu.UVM, fakegpu.Modeset} {
		script = append(script, fmt.Sprintf("%s insmod %s %s", filepath.Join(lab.GPUFolder, kernelProgram), module, version))
	}
	if _, err := n.Exec(ctx, "sh", "-c", strings.Join(script, "\n")); err != nil {
		return fmt.Errorf("install driver %s on %s: %w", version, node, err)
	}
	return nil
}
