package cdi

import (
	"fmt"
	"os"
	"strconv"

	"tags.cncf.io/container-device-interface/pkg/parser"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// grant is a prepared device with the device node of its GPU and its hooks.
type grant struct {
	prepare.Prepared
	gpu   driverroot.Node
	hooks []*cdispec.Hook
}

// extra is additional device nodes that a claim requests, with their files.
type extra struct {
	name params.Extra
	driverroot.Extra
}

// claim returns the spec of a claim: one device per grant, in their order, then one per extra; and for each grant the
// ids that inject it with its extras. The device's own id comes first, because kubelet identifies a device by its first
// id.
func claim(uid string, driver driverroot.Driver, grants []grant, extras []extra) (*cdispec.Spec, [][]string, error) {
	spec := cdispec.Spec{Kind: vendor + "/" + claimClass}
	var ids [][]string
	for i, g := range grants {
		name := uid + "-" + strconv.Itoa(i) + "-" + g.Device
		if err := parser.ValidateDeviceName(name); err != nil {
			return nil, nil, fmt.Errorf("name device %s: %w", g.Device, err)
		}
		edits := client(g.Prepared)
		var err error
		if edits.DeviceNodes, err = nodes(driver, g); err != nil {
			return nil, nil, fmt.Errorf("give device %s: %w", g.Device, err)
		}
		edits.Hooks = g.hooks
		spec.Devices = append(spec.Devices, cdispec.Device{Name: name, ContainerEdits: edits})
		own := []string{
			parser.QualifiedName(vendor, claimClass, name),
			parser.QualifiedName(vendor, commonClass, commonDevice),
		}
		for _, requested := range g.Settings.Extras.List() {
			own = append(own, parser.QualifiedName(vendor, claimClass, extraName(uid, requested)))
		}
		ids = append(ids, own)
	}
	for _, e := range extras {
		spec.Devices = append(spec.Devices, cdispec.Device{Name: extraName(uid, e.name), ContainerEdits: e.edits()})
	}
	versioned, err := versioned(spec)
	return versioned, ids, err
}

func extraName(uid string, e params.Extra) string { return uid + "-" + string(e) }

func (e extra) edits() cdispec.ContainerEdits {
	var edits cdispec.ContainerEdits
	for _, node := range e.Nodes {
		// The runtime reads the numbers when it creates a container.
		edits.DeviceNodes = append(edits.DeviceNodes, &cdispec.DeviceNode{Path: node.Path, HostPath: node.Host})
	}
	for _, file := range e.Files {
		edits.Mounts = append(edits.Mounts, mount(file, "ro", "nosuid", "nodev", "rbind", "rprivate"))
	}
	return edits
}

// nodes returns the device nodes of one device: its GPU's and, for a part of the GPU, those of the capabilities that
// give access to exactly that part.
func nodes(driver driverroot.Driver, g grant) ([]*cdispec.DeviceNode, error) {
	nodes := []*cdispec.DeviceNode{deviceNode(g.gpu, driver.Access)}
	names, err := capabilities(driver, g.Prepared)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		capability, err := driver.Capability(name)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, capabilityNode(capability))
	}
	return nodes, nil
}

// capabilities returns the MIG capabilities that a device needs in addition to its GPU.
func capabilities(driver driverroot.Driver, p prepare.Prepared) ([]string, error) {
	switch p.Use.Shape {
	case gpu.Whole, gpu.TimeShare, gpu.MPS:
		return nil, nil
	case gpu.MIG:
		if p.Instance == nil || p.Instance.CI == gpu.NoCompute {
			return nil, fmt.Errorf("%v on %s has no instance", p.Use.Placement, p.Use.GPU)
		}
		return access(p.GPU, *p.Instance), nil
	case gpu.Monitor:
		if _, mig := driver.Capabilities[monitor]; !mig {
			return nil, nil
		}
		names := []string{monitor}
		for _, instance := range p.Watched {
			if instance.CI != gpu.NoCompute {
				names = append(names, access(p.GPU, instance)...)
			}
		}
		return names, nil
	case gpu.None, gpu.VFIO:
	}
	return nil, fmt.Errorf("use %s as %v: %w", p.Use.GPU, p.Use.Shape, gpu.ErrUnsupported)
}

// access returns the capabilities that give access to one MIG device.
func access(g gpu.GPU, i gpu.Instance) []string {
	instance := fmt.Sprintf("gpu%d/gi%d", g.Minor, i.GI)
	return []string{instance + "/access", fmt.Sprintf("%s/ci%d/access", instance, i.CI)}
}

// monitor is the capability to monitor every MIG device without using one.
const monitor = "monitor"

// capabilityNode returns a node with its numbers: the runtime creates it even if the host has none, and gives the
// container read permission, which is all that the driver requires.
func capabilityNode(node driverroot.Node) *cdispec.DeviceNode {
	readable := os.FileMode(0o444)
	return &cdispec.DeviceNode{
		Path:        node.Path,
		Type:        "c",
		Major:       int64(node.Major),
		Minor:       int64(node.Minor),
		FileMode:    &readable,
		Permissions: "r",
	}
}
