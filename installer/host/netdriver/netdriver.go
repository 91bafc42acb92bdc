// Package netdriver waits for the driver of Mellanox network adapters (MOFED), with which nvidia_peermem connects GPUs.
package netdriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
	"github.com/tessera-gpu/tessera/internal/host/pci"
)

// Verb is the name of the verb.
const Verb = "network-driver"

// DriverMissing is the reason for a node with network adapters and without their driver.
const DriverMissing = "NetworkDriverMissing"

const (
	// readyFile is written by network driver containers (k8s-driver-manager main.go, waitForMofedDriver).
	readyFile = "/run/mellanox/drivers/.driver-ready"
	// module is the kernel module of the adapters.
	module = "mlx5_core"
	// vendor is the PCI vendor ID of Mellanox.
	vendor = "0x15b3"
)

// Config has the settings of the verb.
type Config struct {
	Roots host.Roots
	// FromHost reports that the host has its own network driver, which is then awaited by its module and not by the file of a driver container.
	FromHost bool
	// Timeout limits the wait, Period is the interval between checks.
	Timeout, Period time.Duration
}

// Run waits until the network driver is loaded. It succeeds at once on a host without such adapters.
func (c Config) Run(ctx context.Context) host.Result {
	message, err := c.wait(ctx)
	return host.Outcome(Verb, false, message, err)
}

func (c Config) wait(ctx context.Context) (string, error) {
	present, err := c.adapters()
	if err != nil {
		return "", err
	}
	if !present {
		return "the node has no Mellanox network adapter", nil
	}
	timeout := time.NewTimer(c.Timeout)
	defer timeout.Stop()
	ticker := time.NewTicker(c.Period)
	defer ticker.Stop()
	for {
		if loaded, err := c.loaded(); err != nil || loaded {
			return "the network driver is loaded", err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-timeout.C:
			return "", c.missing()
		case <-ticker.C:
		}
	}
}

// adapters reports whether the host has a Mellanox network adapter.
func (c Config) adapters() (bool, error) {
	bus := pci.Sysfs(c.Roots.Sys)
	addresses, err := bus.Addresses()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(addresses, func(address string) bool {
		value, err := bus.Attribute(address, "vendor")
		return err == nil && value == vendor
	}), nil
}

// loaded reports whether the network driver is loaded. The kernel's own driver has the same module, so a driver container is awaited by its file.
func (c Config) loaded() (bool, error) {
	if c.FromHost {
		modules, err := survey.Modules(c.Roots)
		return slices.ContainsFunc(modules, func(m survey.Module) bool { return m.Name == module }), err
	}
	seen, err := c.Roots.See(readyFile)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(seen)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (c Config) missing() error {
	what, todo := fmt.Sprintf("no network driver container has created %s", readyFile),
		"check the pods of the Network Operator, set rdma.useHostMOFED if the host has the driver, or set rdma.enabled: false"
	if c.FromHost {
		what, todo = fmt.Sprintf("the host has not loaded the module %s", module), "install the network driver on the host, or set rdma.useHostMOFED: false"
	}
	return host.Fail(DriverMissing, "the node has Mellanox network adapters and %s within %s; %s", what, c.Timeout, todo)
}
