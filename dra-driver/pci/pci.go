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

// Bus is the PCI bus of the node. It is safe for concurrent use.
type Bus struct {
	sys pci.Sysfs
	// group returns the IOMMU group with which a GPU is passed through to a virtual machine.
	group func(address string) (string, error)
}

// New returns the bus of the sysfs mounted at sys. group returns a GPU's IOMMU group by its PCI address; a GPU for which
// it fails is listed without a group and cannot be allocated.
func New(sys string, group func(address string) (string, error)) *Bus {
	return &Bus{sys: pci.Sysfs(sys), group: group}
}

// Driver returns a constant fingerprint: there is no driver that could change.
func (b *Bus) Driver() string { return "vfio" }

// Reopen does nothing: there is no connection.
func (b *Bus) Reopen(context.Context) error { return nil }

// Close does nothing: there is no connection.
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
			klog.FromContext(ctx).V(2).Info("GPU cannot be passed to a virtual machine", "gpu", g.Name(), "reason", err.Error())
		}
		node.GPUs = append(node.GPUs, g)
	}
	return node, nil
}

// read reads one GPU. An attribute that cannot be read is treated like one that the platform does not have.
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

// attribute returns the content of a function's file in sysfs; empty if it cannot be read.
func (b *Bus) attribute(address, name string) string {
	value, err := b.sys.Attribute(address, name)
	if err != nil {
		return ""
	}
	return value
}

// List returns no MIG devices: MIG is up to the guest.
func (b *Bus) List(context.Context, string) ([]gpu.Instance, error) { return nil, nil }

// Geometry returns nil.
func (b *Bus) Geometry(context.Context, string) (*gpu.Geometry, error) { return nil, nil }

// Create returns an error that wraps gpu.ErrUnsupported.
func (b *Bus) Create(_ context.Context, gpuName string, p gpu.Placement) (gpu.Instance, error) {
	return gpu.Instance{}, unsupported(gpuName, p.String())
}

// Complete returns an error that wraps gpu.ErrUnsupported.
func (b *Bus) Complete(_ context.Context, i gpu.Instance) (gpu.Instance, error) {
	return gpu.Instance{}, unsupported(i.GPU, i.String())
}

// Destroy does nothing: there are no MIG devices.
func (b *Bus) Destroy(context.Context, gpu.Instance) error { return nil }

// Mode returns gpu.ModeUnsupported.
func (b *Bus) Mode(context.Context, string) (gpu.Mode, error) { return gpu.ModeUnsupported, nil }

// SetMode returns an error that wraps gpu.ErrUnsupported.
func (b *Bus) SetMode(_ context.Context, gpuName string, m gpu.Mode) error {
	return unsupported(gpuName, m.String())
}

// SetComputeMode returns an error that wraps gpu.ErrUnsupported.
func (b *Bus) SetComputeMode(_ context.Context, gpuName string, m gpu.ComputeMode) error {
	return unsupported(gpuName, m.String())
}

// Measure returns no telemetry: without a driver there are no sensors.
func (b *Bus) Measure(context.Context, string) (gpu.Measurement, error) {
	return gpu.Measurement{}, nil
}

// WatchEvents delivers no events, because XIDs come from the driver. It blocks until ctx ends and returns its error.
func (b *Bus) WatchEvents(ctx context.Context, _ func(gpu.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// Check reads whether the GPU is on the bus and responds. The error wraps gpu.ErrLost if sysfs does not have the GPU or
// its configuration space reads as all ones; a sysfs without configuration spaces has the second check skipped. There
// are no other conditions.
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

// ChangedSince returns false: there are no MIG devices.
func (b *Bus) ChangedSince(time.Time) bool { return false }

// Present reports whether an NVIDIA device is at the GPU's address, whether or not it responds; true if the bus cannot
// be read.
func (b *Bus) Present(gpuName string) bool {
	address, err := b.find(gpuName)
	if err != nil {
		return !errors.Is(err, errNotOnBus)
	}
	return b.sys.IsNVIDIA(address)
}

// find returns the PCI address of the GPU. The error wraps gpu.ErrLost.
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

// Disconnected returns an error that wraps gpu.ErrUnsupported: a reset needs NVIDIA's driver. The hypervisor resets a
// GPU whenever a virtual machine starts or stops.
func (b *Bus) Disconnected(context.Context, func(context.Context) error) error {
	return fmt.Errorf("a reset of GPUs that are for virtual machines: %w", gpu.ErrUnsupported)
}

// Users returns an error that wraps gpu.ErrUnsupported: the processes inside a virtual machine are not visible.
func (b *Bus) Users(_ context.Context, gpuName string) ([]int, error) {
	return nil, unsupported(gpuName, "processes")
}

// Processes returns an error that wraps gpu.ErrUnsupported, as Users does.
func (b *Bus) Processes(_ context.Context, gpuName string) ([]gpu.Process, error) {
	return nil, unsupported(gpuName, "processes")
}

func unsupported(gpuName, what string) error {
	return fmt.Errorf("%s on %s, which is for virtual machines: %w", what, gpuName, gpu.ErrUnsupported)
}
