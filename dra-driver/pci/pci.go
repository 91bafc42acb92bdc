package pci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/pci"
)

// Bus is the PCI bus of the node.
type Bus struct {
	sys pci.Sysfs
	// group returns the IOMMU group with which a GPU can be given to a virtual machine.
	group func(address string) (string, error)
}

// New returns the bus that a sysfs shows. Group finds a GPU's IOMMU group by its address; a GPU for which it fails is known, and not offered.
func New(sys string, group func(address string) (string, error)) *Bus {
	return &Bus{sys: pci.Sysfs(sys), group: group}
}

// Driver returns a fingerprint of what is read here. It never changes: there is no driver to wait for.
func (b *Bus) Driver() string { return "vfio" }

// Reopen connects to nothing.
func (b *Bus) Reopen(context.Context) error { return nil }

// Close ends nothing.
func (b *Bus) Close() {}

// Read reads the node without its name, the GPUs in order of address.
func (b *Bus) Read(ctx context.Context) (gpu.Node, error) {
	functions, err := b.sys.GPUs()
	if err != nil {
		return gpu.Node{}, err
	}
	var node gpu.Node
	for i, function := range functions {
		g := b.read(function)
		g.Index = i
		if g.IOMMUGroup, err = b.group(function.Address); err != nil {
			klog.FromContext(ctx).V(2).Info("GPU cannot be given to a virtual machine", "gpu", g.Name(), "reason", err.Error())
		}
		node.GPUs = append(node.GPUs, g)
	}
	return node, nil
}

// read reads one GPU. What cannot be read is answered like what the platform does not have.
func (b *Bus) read(function pci.Function) gpu.GPU {
	known := modelOf(function.Device)
	g := gpu.GPU{
		PCI: function.Address, Product: known.product, Architecture: known.architecture, MemoryBytes: known.mebibytes << 20,
		Mode: gpu.ModeUnsupported, Pending: gpu.ModeUnsupported, NUMA: -1, PCIeRoot: b.sys.Root(function.Address),
	}
	if number, err := strconv.Atoi(b.attribute(function.Address, "numa_node")); err == nil {
		g.NUMA = number
	}
	return g
}

// attribute returns the content of a function's file; empty if it cannot be read.
func (b *Bus) attribute(address, name string) string {
	value, err := b.sys.Attribute(address, name)
	if err != nil {
		return ""
	}
	return value
}

// List returns no instances: MIG is the guest's.
func (b *Bus) List(context.Context, string) ([]gpu.Instance, error) { return nil, nil }

// Create refuses.
func (b *Bus) Create(_ context.Context, gpuName string, p gpu.Placement) (gpu.Instance, error) {
	return gpu.Instance{}, unsupported(gpuName, p.String())
}

// Complete refuses.
func (b *Bus) Complete(_ context.Context, i gpu.Instance) (gpu.Instance, error) {
	return gpu.Instance{}, unsupported(i.GPU, i.String())
}

// Destroy has nothing to destroy.
func (b *Bus) Destroy(context.Context, gpu.Instance) error { return nil }

// Mode returns that there is none.
func (b *Bus) Mode(context.Context, string) (gpu.Mode, error) { return gpu.ModeUnsupported, nil }

// SetMode refuses.
func (b *Bus) SetMode(_ context.Context, gpuName string, m gpu.Mode) error {
	return unsupported(gpuName, m.String())
}

// SetComputeMode refuses.
func (b *Bus) SetComputeMode(_ context.Context, gpuName string, m gpu.ComputeMode) error {
	return unsupported(gpuName, m.String())
}

// Measure reads nothing: without a driver there are no sensors.
func (b *Bus) Measure(context.Context, string) (gpu.Measurement, error) {
	return gpu.Measurement{}, nil
}

// WatchEvents tells nothing: without a driver nobody hears of errors. It blocks until ctx ends.
func (b *Bus) WatchEvents(ctx context.Context, _ func(gpu.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// Check looks whether the GPU is on the bus and answers there. An error wraps gpu.ErrLost when it does not: then it is gone from sysfs, or
// its configuration space reads as all ones, of which a sysfs that shows none says nothing. There is nothing else to know.
func (b *Bus) Check(_ context.Context, gpuName string) (gpu.Checkup, error) {
	c := gpu.Checkup{GPU: gpuName, At: time.Now()}
	address, err := b.find(gpuName)
	if err != nil {
		return c, err
	}
	config, err := b.sys.Config(address)
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.attribute(address, "vendor") != "":
	case err != nil:
		return c, fmt.Errorf("read the configuration space of %s: %w: %w", address, gpu.ErrLost, err)
	case len(config) >= 2 && config[0] == 0xff && config[1] == 0xff:
		return c, fmt.Errorf("the configuration space of %s reads as all ones: %w", address, gpu.ErrLost)
	}
	c.Conditions = []gpu.Condition{{Signal: gpu.SignalLost}}
	return c, nil
}

// Present reports whether a device is in the GPU's place, whether or not it answers. In doubt one is.
func (b *Bus) Present(gpuName string) bool {
	address, err := b.find(gpuName)
	if err != nil {
		return !errors.Is(err, errNotOnBus)
	}
	return b.sys.IsNVIDIA(address)
}

// find returns the PCI address of the GPU.
func (b *Bus) find(gpuName string) (string, error) {
	addresses, err := b.sys.Addresses()
	if err != nil {
		return "", fmt.Errorf("%w: %w", gpu.ErrLost, err)
	}
	for _, address := range addresses {
		if (gpu.GPU{PCI: address}).Name() == gpuName {
			return address, nil
		}
	}
	return "", fmt.Errorf("%s: %w: %w", gpuName, errNotOnBus, gpu.ErrLost)
}

// errNotOnBus means that the bus was read and has no function at the GPU's address.
var errNotOnBus = errors.New("not on the PCI bus")

// Disconnected refuses: what would be done apart, a reset, needs NVIDIA's driver. The virtual machine's monitor resets a GPU whenever a machine
// ends or begins with it.
func (b *Bus) Disconnected(context.Context, func(context.Context) error) error {
	return fmt.Errorf("a reset of GPUs that are for virtual machines: %w", gpu.ErrUnsupported)
}

// Users refuses: who is inside a virtual machine is not known.
func (b *Bus) Users(_ context.Context, gpuName string) ([]int, error) {
	return nil, unsupported(gpuName, "processes")
}

func unsupported(gpuName, what string) error {
	return fmt.Errorf("%s on %s, which is for virtual machines: %w", what, gpuName, gpu.ErrUnsupported)
}
