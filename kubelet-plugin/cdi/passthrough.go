package cdi

import (
	"fmt"
	"path/filepath"
	"strconv"

	"tags.cncf.io/container-device-interface/pkg/parser"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// usesPassthrough reports whether the devices are for virtual machines. A node has no other devices then, and no driver.
func usesPassthrough(devices []prepare.Prepared) bool {
	return len(devices) > 0 && devices[0].Use.Shape == gpu.VFIO
}

// passthrough writes the spec of a claim for virtual machines: for each device the node of its IOMMU group and
// /dev/vfio/vfio, which opens any group. QEMU in a pod of KubeVirt expects both at these paths, and Kata's runtime
// passes the device of the group's node through. There is no common device, because nothing of a driver is injected.
func (s *Specs) passthrough(uid string, devices []prepare.Prepared) ([][]string, error) {
	spec := cdispec.Spec{Kind: vendor + "/" + claimClass}
	var ids [][]string
	for i, device := range devices {
		if device.Use.Shape != gpu.VFIO || device.IOMMUGroup == "" {
			return nil, fmt.Errorf("pass device %s to a virtual machine: it is %v in IOMMU group %q: %w", device.Device, device.Use.Shape, device.IOMMUGroup, gpu.ErrUnsupported)
		}
		name := uid + "-" + strconv.Itoa(i) + "-" + device.Device
		if err := parser.ValidateDeviceName(name); err != nil {
			return nil, fmt.Errorf("name device %s: %w", device.Device, err)
		}
		var edits cdispec.ContainerEdits
		for _, node := range []string{"vfio", device.IOMMUGroup} {
			file, err := s.config.Roots.Device(filepath.Join("vfio", node))
			if err != nil {
				return nil, fmt.Errorf("give device %s: %w", device.Device, err)
			}
			edits.DeviceNodes = append(edits.DeviceNodes, &cdispec.DeviceNode{Path: file.Path, HostPath: file.Host})
		}
		spec.Devices = append(spec.Devices, cdispec.Device{Name: name, ContainerEdits: edits})
		ids = append(ids, []string{parser.QualifiedName(vendor, claimClass, name)})
	}
	versioned, err := versioned(spec)
	if err != nil {
		return nil, err
	}
	return ids, s.writeSpec(claimFile(uid), versioned)
}
