package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// The errors on which callers decide.
var (
	// ErrNoIOMMU means that the machine cannot isolate a device's memory accesses: the IOMMU is disabled or missing.
	ErrNoIOMMU = errors.New("no IOMMU group")
	// ErrNoModule means that the module vfio-pci is not loaded.
	ErrNoModule = errors.New("module vfio-pci is not loaded")
	// ErrShared means that the group has a device of another card.
	ErrShared = errors.New("IOMMU group shared with another card")
)

const (
	driver  = "vfio-pci"
	devices = "bus/pci/devices"
	drivers = "bus/pci/drivers"
)

// Group is an IOMMU group.
type Group struct {
	// ID is its number, as in /dev/vfio/<ID>.
	ID string
	// Devices are the PCI addresses of the devices that are passed through: the GPU last, its card's other functions
	// before it.
	Devices []string
}

// Find returns the group of a GPU by its PCI address. The error wraps ErrNoIOMMU if it has none, and ErrShared if the
// group has a device of another card, which would be passed through too.
func Find(sys Sys, address string) (Group, error) {
	id, err := sys.Link(path.Join(devices, address, "iommu_group"))
	if errors.Is(err, fs.ErrNotExist) {
		return Group{}, fmt.Errorf("find the IOMMU group of %s: %w: enable the IOMMU (firmware: VT-d or AMD-Vi; kernel: intel_iommu=on or amd_iommu=on)", address, ErrNoIOMMU)
	}
	if err != nil {
		return Group{}, fmt.Errorf("find the IOMMU group of %s: %w", address, err)
	}
	members, err := sys.List(path.Join("kernel/iommu_groups", id, "devices"))
	if err != nil {
		return Group{}, fmt.Errorf("read IOMMU group %s: %w", id, err)
	}
	group := Group{ID: id}
	for _, member := range members {
		class, err := sys.Read(path.Join(devices, member, "class"))
		if err != nil {
			return Group{}, fmt.Errorf("read device %s of IOMMU group %s: %w", member, id, err)
		}
		switch {
		case strings.HasPrefix(class, "0x0604"), member == address: // a bridge of the bus keeps its own driver
		case slot(member) == slot(address):
			group.Devices = append(group.Devices, member)
		default:
			return Group{}, fmt.Errorf("IOMMU group %s of %s also contains device %s (class %s): %w: move the card to another slot, or enable ACS in the firmware",
				id, address, member, class, ErrShared)
		}
	}
	slices.Sort(group.Devices)
	group.Devices = append(group.Devices, address)
	return group, nil
}

// slot returns an address without its function number.
func slot(address string) string {
	card, _, _ := strings.Cut(address, ".")
	return card
}
