// Package fakevfio models the part of sysfs by which PCI devices change their drivers: writes change what is read, by the rules of the kernel's PCI bus
// (drivers/base/bus.c, dd.c and drivers/pci/pci-driver.c). It implements the ports Sys and Nodes of kubelet-plugin/vfio.
package fakevfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Kernel is the sysfs, with the device nodes of IOMMU groups. Its methods are safe for concurrent use, its fields are not.
type Kernel struct {
	mutex sync.Mutex
	// Devices are the devices of the bus by address.
	Devices map[string]*Device
	// Takes are the loaded drivers, and the devices that each binds by itself.
	Takes map[string][]string
	// Loadable are the modules that can be loaded, each with its driver.
	Loadable []string
	// Refuses are drivers whose probe fails: the device stays unbound, and the write returns no error.
	Refuses map[string]bool
	// Open are the groups that a program has open, Withheld those whose node does not appear.
	Open, Withheld map[string]bool
	// Stuck devices keep their override whatever is written.
	Stuck map[string]bool
	// Refs is the reference count of NVIDIA's module; empty: it is not loaded.
	Refs string
	// Writes are the writes so far. The n-th, counted from 1, returns fault n; after ErrCrash every call fails.
	Writes []string
	Faults map[int]error

	dead bool
}

// Device is a function of the PCI bus. An empty Driver or Override is none.
type Device struct{ Class, Group, Driver, Override string }

// ErrCrash is a fault that ends the process.
var ErrCrash = errors.New("crash")

// Card returns a machine with a display GPU at 0000:01:00.0 that has its driver, with its sound device behind one bridge, and with a GPU without a
// driver at 0000:17:00.0, alone in its group.
func Card() *Kernel {
	return &Kernel{
		Devices: map[string]*Device{
			"0000:00:01.0": {Class: "0x060400", Group: "7", Driver: "pcieport"},
			"0000:01:00.0": {Class: "0x030000", Group: "7", Driver: "nouveau"},
			"0000:01:00.1": {Class: "0x040300", Group: "7", Driver: "snd_hda_intel"},
			"0000:17:00.0": {Class: "0x030200", Group: "31"},
		},
		Takes: map[string][]string{
			"pcieport": {"0000:00:01.0"}, "nouveau": {"0000:01:00.0"}, "snd_hda_intel": {"0000:01:00.1"}, "vfio-pci": nil,
		},
		Loadable: []string{"vfio-pci"},
		Refuses:  map[string]bool{}, Open: map[string]bool{}, Withheld: map[string]bool{}, Stuck: map[string]bool{}, Faults: map[int]error{},
	}
}

func (k *Kernel) alive() error {
	if k.dead {
		return ErrCrash
	}
	return nil
}

// Read returns a file.
func (k *Kernel) Read(file string) (string, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err := k.alive(); err != nil {
		return "", err
	}
	if file == "module/nvidia/refcnt" && k.Refs != "" {
		return k.Refs, nil
	}
	d := k.Devices[path.Base(path.Dir(file))]
	if d != nil && path.Dir(path.Dir(file)) == "bus/pci/devices" {
		switch path.Base(file) {
		case "class":
			return d.Class, nil
		case "driver_override":
			if d.Override == "" {
				return "(null)", nil
			}
			return d.Override, nil
		}
	}
	return "", fs.ErrNotExist
}

// Link returns the last element of a link.
func (k *Kernel) Link(file string) (string, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err := k.alive(); err != nil {
		return "", err
	}
	target := ""
	if d := k.Devices[path.Base(path.Dir(file))]; d != nil {
		switch path.Base(file) {
		case "driver":
			target = d.Driver
		case "iommu_group":
			target = d.Group
		}
	}
	if target == "" {
		return "", fs.ErrNotExist
	}
	return target, nil
}

// List returns the names in a folder.
func (k *Kernel) List(folder string) ([]string, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err := k.alive(); err != nil {
		return nil, err
	}
	if group, ok := strings.CutPrefix(path.Dir(folder), "kernel/iommu_groups/"); ok && path.Base(folder) == "devices" {
		var members []string
		for _, address := range slices.Sorted(maps.Keys(k.Devices)) {
			if k.Devices[address].Group == group {
				members = append(members, address)
			}
		}
		return members, nil
	}
	if _, loaded := k.Takes[path.Base(folder)]; loaded && path.Dir(folder) == "bus/pci/drivers" {
		return []string{"bind", "unbind"}, nil
	}
	return nil, fs.ErrNotExist
}

// Write writes a file and applies its effect.
func (k *Kernel) Write(ctx context.Context, file, text string) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err := k.alive(); err != nil {
		return err
	}
	k.Writes = append(k.Writes, path.Base(path.Dir(file))+"/"+path.Base(file)+"="+strings.TrimSpace(text))
	if err := k.Faults[len(k.Writes)]; err != nil {
		k.dead = errors.Is(err, ErrCrash)
		return err
	}
	switch folder := path.Dir(file); {
	case path.Base(file) == "driver_override":
		return k.override(path.Base(folder), text)
	case path.Base(file) == "unbind" && path.Dir(folder) == "bus/pci/drivers":
		return k.unbind(ctx, path.Base(folder), text)
	case file == "bus/pci/drivers_probe":
		return k.probe(text)
	}
	return fs.ErrNotExist
}

func (k *Kernel) override(address, text string) error {
	d := k.Devices[address]
	if d == nil {
		return fs.ErrNotExist
	}
	if !strings.HasSuffix(text, "\n") {
		return unix.EINVAL
	}
	if !k.Stuck[address] {
		d.Override = strings.TrimSpace(text)
	}
	return nil
}

// unbind waits while a program uses the device, as the kernel does.
func (k *Kernel) unbind(ctx context.Context, from, address string) error {
	d := k.Devices[address]
	if d == nil || d.Driver != from {
		return unix.ENODEV
	}
	if from == "vfio-pci" && k.Open[d.Group] || from == "nvidia" && k.Refs != "0" {
		k.mutex.Unlock()
		<-ctx.Done()
		k.mutex.Lock()
		return context.Cause(ctx)
	}
	d.Driver = ""
	return nil
}

// probe offers a device without a driver to the drivers. An override restricts this to the named driver.
func (k *Kernel) probe(address string) error {
	d := k.Devices[address]
	if d == nil {
		return unix.ENODEV
	}
	for _, name := range slices.Sorted(maps.Keys(k.Takes)) {
		wanted := slices.Contains(k.Takes[name], address)
		if d.Override != "" {
			wanted = name == d.Override
		}
		if d.Driver == "" && wanted && !k.Refuses[name] {
			d.Driver = name
		}
	}
	return nil
}

// Check opens the node of a group, which is there while a device of the group is bound.
func (k *Kernel) Check(group string) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	bound := false
	for _, d := range k.Devices {
		bound = bound || d.Group == group && d.Driver == "vfio-pci"
	}
	switch {
	case !bound || k.Withheld[group]:
		return fs.ErrNotExist
	case k.Open[group]:
		return fmt.Errorf("open: %w", gpu.ErrBusy)
	}
	return nil
}

// Load loads a module. It is the port Modules.
func (k *Kernel) Load(_ context.Context, module string) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err := k.alive(); err != nil {
		return err
	}
	if !slices.Contains(k.Loadable, module) {
		return fmt.Errorf("module %s not found", module)
	}
	if _, loaded := k.Takes[module]; !loaded {
		k.Takes[module] = nil
	}
	return nil
}

// State is the driver and override of every device: driver/override by address.
func (k *Kernel) State() map[string]string {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	s := map[string]string{}
	for address, d := range k.Devices {
		s[address] = d.Driver + "/" + d.Override
	}
	return s
}

// Revive is a new process after a crash.
func (k *Kernel) Revive() {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.dead, k.Faults, k.Writes = false, map[int]error{}, nil
}
