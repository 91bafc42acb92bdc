package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// DriverFault is a simulated fault of a driver version on a bare node.
type DriverFault string

// Faults of drivers.
const (
	Works DriverFault = ""
	Fails DriverFault = "fail" // the module does not load
	Hangs DriverFault = "hang" // loading never ends
)

// BreakDriver sets the fault of a driver version on a bare node, effective from its next start. An empty fault removes
// it.
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
