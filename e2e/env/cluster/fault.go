package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// DriverFault is what becomes of a driver version on a bare node.
type DriverFault string

// The faults of drivers.
const (
	Works DriverFault = ""
	Fails DriverFault = "fail" // it does not load
	Hangs DriverFault = "hang" // it is never done
)

// BreakDriver makes a version of the driver fail on a bare node from its next start on, or work again.
func (c *Cluster) BreakDriver(node, version string, fault DriverFault) error {
	n, err := c.Node(node)
	if err != nil {
		return err
	}
	file := filepath.Join(n.GPUFolder(), "faults", version)
	if fault == Works {
		return os.RemoveAll(file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("break driver %s on %s: %w", version, node, err)
	}
	return os.WriteFile(file, []byte(fault), 0o644)
}
