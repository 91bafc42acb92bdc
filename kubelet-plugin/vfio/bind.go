package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Binder binds GPUs to vfio-pci. The caller holds the lock of the GPU: two calls for one group must not overlap.
type Binder struct {
	sys     Sys
	nodes   Nodes
	modules Modules
}

// New returns a binder.
func New(sys Sys, nodes Nodes, modules Modules) *Binder {
	return &Binder{sys: sys, nodes: nodes, modules: modules}
}

// Bind binds the GPU at a PCI address, with its card's other functions, to vfio-pci and returns its group. A GPU that is
// already bound stays so. After an error the previous drivers are restored, or the error names the devices that are not.
func (b *Binder) Bind(ctx context.Context, address string) (Group, error) {
	group, err := Find(b.sys, address)
	if err != nil {
		return Group{}, err
	}
	if err := b.load(ctx); err != nil {
		return Group{}, fmt.Errorf("bind %s: %w", address, err)
	}
	before := make([]string, len(group.Devices))
	for i, device := range group.Devices {
		if before[i], err = b.driverOf(device); err != nil {
			return Group{}, err
		}
		if err := b.idle(device, before[i]); err != nil {
			return Group{}, err
		}
	}
	for i, device := range group.Devices {
		if err := b.move(ctx, device, driver); err != nil {
			return Group{}, errors.Join(fmt.Errorf("bind %s to %s: %w", device, driver, err), b.undo(ctx, group.Devices[:i+1], before))
		}
	}
	if err := b.nodes.Check(group.ID); err != nil && !errors.Is(err, gpu.ErrBusy) {
		return Group{}, errors.Join(fmt.Errorf("bind %s to %s: the device node of the group: %w", address, driver, err), b.undo(ctx, group.Devices, before))
	}
	return group, nil
}

// load loads vfio-pci if it is missing. The module is never unloaded, because it has no effect on other devices.
func (b *Binder) load(ctx context.Context) error {
	folder := path.Join(drivers, driver)
	if _, err := b.sys.List(folder); err == nil {
		return nil
	}
	if err := b.modules.Load(ctx, driver); err != nil {
		return fmt.Errorf("%w: %w", ErrNoModule, err)
	}
	if _, err := b.sys.List(folder); err != nil {
		return fmt.Errorf("%w: it was loaded and has no folder in sysfs: %w", ErrNoModule, err)
	}
	return nil
}

// Unbind returns the GPU at a PCI address, with its card's other functions, to the default driver; on a node for virtual
// machines there may be none. A GPU that is not bound to vfio-pci is not changed. The error wraps gpu.ErrBusy while a
// virtual machine has the group open.
func (b *Binder) Unbind(ctx context.Context, address string) error {
	group, err := Find(b.sys, address)
	if err != nil {
		return err
	}
	bound := false
	for _, device := range group.Devices {
		current, err := b.driverOf(device)
		if err != nil {
			return err
		}
		bound = bound || current == driver
	}
	if err := b.nodes.Check(group.ID); bound && errors.Is(err, gpu.ErrBusy) {
		return fmt.Errorf("unbind %s: %w", address, err)
	}
	for i := len(group.Devices) - 1; i >= 0; i-- {
		if err := b.release(ctx, group.Devices[i]); err != nil {
			return fmt.Errorf("unbind %s from %s: %w", group.Devices[i], driver, err)
		}
	}
	return nil
}

// Bound reports whether the GPU and all other devices of its group are bound to vfio-pci.
func (b *Binder) Bound(address string) (bool, error) {
	group, err := Find(b.sys, address)
	if err != nil {
		return false, err
	}
	for _, device := range group.Devices {
		if current, err := b.driverOf(device); err != nil || current != driver {
			return false, err
		}
	}
	return true, nil
}

// driverOf returns the driver of a device; empty if it has none.
func (b *Binder) driverOf(device string) (string, error) {
	name, err := b.sys.Link(path.Join(devices, device, "driver"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the driver of %s: %w", device, err)
	}
	return name, nil
}

// idle returns gpu.ErrBusy if the driver's module is in use: NVIDIA's driver does not report which of its GPUs is, and
// unbinding one in use would block.
func (b *Binder) idle(device, by string) error {
	if by != "nvidia" {
		return nil
	}
	count, err := b.sys.Read("module/nvidia/refcnt")
	if errors.Is(err, fs.ErrNotExist) || err == nil && count == "0" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read whether the driver of %s is used: %w", device, err)
	}
	return fmt.Errorf("unbind %s from the driver nvidia, which has %s users: %w", device, count, gpu.ErrBusy)
}

// move binds a device to the driver to; empty clears the override and lets the kernel probe for a driver.
func (b *Binder) move(ctx context.Context, device, to string) error {
	current, err := b.driverOf(device)
	if err != nil {
		return err
	}
	if err := b.override(ctx, device, to); err != nil {
		return err
	}
	if current == to && to != "" {
		return nil
	}
	if current != "" {
		if err := b.sys.Write(ctx, path.Join(drivers, current, "unbind"), device); err != nil {
			return fmt.Errorf("unbind it from %s: %w", current, err)
		}
	}
	if err := b.sys.Write(ctx, "bus/pci/drivers_probe", device); err != nil {
		return fmt.Errorf("probe drivers for it: %w", err)
	}
	return b.moved(device, to)
}

// moved verifies that a device has been moved.
func (b *Binder) moved(device, to string) error {
	now, err := b.driverOf(device)
	switch {
	case err != nil:
		return err
	case to != "" && now != to:
		return fmt.Errorf("it was bound to driver %q: see the kernel log (dmesg)", now)
	case to == "" && now == driver:
		return fmt.Errorf("it is still bound to %s: see the kernel log (dmesg)", driver)
	}
	return nil
}

// override writes driver_override and verifies it. A line end alone clears it.
func (b *Binder) override(ctx context.Context, device, to string) error {
	file := path.Join(devices, device, "driver_override")
	now, err := b.overridden(file)
	if err != nil || now == to {
		return err
	}
	if err := b.sys.Write(ctx, file, to+"\n"); err != nil {
		return fmt.Errorf("override its driver: %w", err)
	}
	if now, err = b.overridden(file); err != nil {
		return err
	}
	if now != to {
		return fmt.Errorf("override its driver with %q: it is still %q", to, now)
	}
	return nil
}

// overridden reads driver_override, for which the kernel writes (null) if it is empty.
func (b *Binder) overridden(file string) (string, error) {
	now, err := b.sys.Read(file)
	if err != nil {
		return "", fmt.Errorf("read the override of its driver: %w", err)
	}
	return strings.TrimSpace(strings.ReplaceAll(now, "(null)", "")), nil
}

// release returns a device to its default driver: one that vfio-pci has, or that an interrupted call has left with the
// override or without a driver.
func (b *Binder) release(ctx context.Context, device string) error {
	current, err := b.driverOf(device)
	if err != nil {
		return err
	}
	override, err := b.overridden(path.Join(devices, device, "driver_override"))
	if err != nil {
		return err
	}
	switch {
	case current == driver, current == "":
		return b.move(ctx, device, "")
	case override == driver: // it never left its own driver, or another one has bound it meanwhile
		return b.override(ctx, device, "")
	}
	return nil
}

// restoreTimeout is how long the restoration after a failure may take.
const restoreTimeout = 10 * time.Second

// undo restores the drivers of devices after a failure, also if ctx has ended. Its error names the devices whose driver
// was not restored.
func (b *Binder) undo(ctx context.Context, moved, before []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	var errs []error
	for i := len(moved) - 1; i >= 0; i-- {
		if before[i] == driver {
			continue
		}
		err := b.release(ctx, moved[i])
		if err == nil {
			var now string
			if now, err = b.driverOf(moved[i]); err == nil && now != before[i] {
				err = fmt.Errorf("its driver was %q and is %q", before[i], now)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("restore the driver of %s: %w", moved[i], err))
		}
	}
	return errors.Join(errs...)
}
