package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Read reads the node from the hardware, without its name and without the decision which devices are withheld. A GPU
// that does not respond is not an error: it is in the result with Lost set and the facts read earlier. If the driver is
// missing or was replaced, the error wraps gpu.ErrNoDriver and Reopen is needed. Concurrent calls of Read are
// serialized.
func (s *Session) Read(ctx context.Context) (gpu.Node, error) {
	if err := s.useConnection(ctx); err != nil {
		return gpu.Node{}, fmt.Errorf("read the GPUs: %w", err)
	}
	defer s.leaveConnection()
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.node == nil {
		return gpu.Node{}, fmt.Errorf("read the GPUs: %w", gpu.ErrNoDriver)
	}
	read := gpu.Node{DriverVersion: s.node.driver, CUDAVersion: s.node.cuda}
	var wires []activeLink
	for _, d := range s.node.devices {
		if err := ctx.Err(); err != nil {
			return gpu.Node{}, err
		}
		g, up, err := s.state(ctx, d)
		if err != nil {
			return gpu.Node{}, fmt.Errorf("read GPU %d: %w", d.index, err)
		}
		read.GPUs = append(read.GPUs, g)
		wires = append(wires, up...)
	}
	s.assignAddresses(read.GPUs)
	s.node.readLimiter(s.cgroups, read.GPUs)
	s.node.readTopology()
	addresses := make([]string, len(read.GPUs))
	for i, g := range read.GPUs {
		addresses[i] = g.PCI
	}
	for i, links := range linkMatrix(addresses, wires, s.node.relatedness) {
		read.GPUs[i].Links = links
		if s.node.limiter != nil {
			read.GPUs[i].Limiter = *s.node.limiter
		}
	}
	return read, nil
}

// state returns the present state of the GPU and its active NVLinks. A GPU whose calls fail twice is lost, and facts that
// cannot be read twice are left out; only a missing driver is an error.
func (s *Session) state(ctx context.Context, d *device) (gpu.GPU, []activeLink, error) {
	var err error
	for attempt := range 2 {
		var a calls
		var g gpu.GPU
		var wires []activeLink
		g, wires, err = s.stateOnce(ctx, d, &a)
		if err == nil && (len(a.omitted) == 0 || attempt == 1) {
			d.logOmitted(ctx, a.omitted)
			return g, wires, nil
		}
		if errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrNoDriver) {
			break
		}
	}
	if errors.Is(err, gpu.ErrNoDriver) {
		return gpu.GPU{}, nil, err
	}
	lost := gpu.GPU{Index: d.index}
	if known := d.info.Load(); known != nil {
		lost = known.gpu
	}
	lost.Lost = true
	klog.FromContext(ctx).V(2).Info("GPU does not respond", "index", d.index, "gpu", lost.Name(), "err", err)
	return lost, nil, nil
}

func (s *Session) stateOnce(ctx context.Context, d *device, a *calls) (gpu.GPU, []activeLink, error) {
	known, err := s.gpuInfo(ctx, d)
	if err != nil {
		return gpu.GPU{}, nil, err
	}
	a.omitted = slices.Clone(known.omitted)
	return known.readState(a)
}

// logOmitted logs what could not be read of the GPU, when that changes.
func (d *device) logOmitted(ctx context.Context, omitted []error) {
	text := fmt.Sprint(omitted)
	if text != d.logged && len(omitted) > 0 {
		klog.FromContext(ctx).Error(omitted[0], "Some facts of the GPU cannot be read and are left out, retrying", "index", d.index, "count", len(omitted))
	}
	d.logged = text
}

// readState queries everything of the GPU that can change.
func (f *gpuInfo) readState(a *calls) (gpu.GPU, []activeLink, error) {
	g := f.gpu
	g.Minor = query(a, "nvmlDeviceGetMinorNumber", f.handle.GetMinorNumber)
	modes := f.modes(a)
	g.Mode, g.Pending = modes.current, modes.pending
	g.ECC = ecc(a, f.handle)
	g.Clique = clique(a, f.handle)
	wires := f.activeLinks(a)
	if a.err != nil {
		return gpu.GPU{}, nil, a.err
	}
	var err error
	g.Instances, err = f.instances()
	return g, wires, err
}

func ecc(a *calls, d nvml.Device) *bool {
	state, has := queryExtra(a, "nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		current, _, code := d.GetEccMode()
		return current, code
	})
	if !has {
		return nil
	}
	on := state == nvml.FEATURE_ENABLED
	return &on
}

// clique returns clusterUUID.cliqueID once the fabric manager has added the GPU to its NVLink fabric; empty before.
func clique(a *calls, d nvml.Device) string {
	info, has := queryExtra(a, "nvmlDeviceGetGpuFabricInfoV", d.GetGpuFabricInfoV().V2)
	joined := info.State == nvml.GPU_FABRIC_STATE_COMPLETED && nvml.Return(info.Status) == nvml.SUCCESS
	if !has || !joined || info.ClusterUuid == [16]uint8{} {
		return ""
	}
	u := info.ClusterUuid
	return fmt.Sprintf("%x-%x-%x-%x-%x.%d", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16], info.CliqueId)
}

// assignAddresses sets the PCI address, from which the name derives, of GPUs that have never responded. NVML numbers
// GPUs in order of address, so the addresses of the bus that no other GPU has belong to these GPUs in that order. If
// their numbers differ, the addresses stay empty.
func (s *Session) assignAddresses(gpus []gpu.GPU) {
	free := s.sysfs.gpus()
	silent := 0
	for _, g := range gpus {
		free = slices.DeleteFunc(free, func(address string) bool { return address == g.PCI })
		if g.PCI == "" {
			silent++
		}
	}
	if silent != len(free) {
		return
	}
	for i := range gpus {
		if gpus[i].PCI == "" {
			gpus[i].PCI, free = free[0], free[1:]
		}
	}
}

// readTopology completes the PCIe relations of the GPUs. A relation that NVML does not return stays unknown, and the
// next Read queries it again.
func (n *node) readTopology() {
	for b, second := range n.devices {
		for a, first := range n.devices[:b] {
			x, y := first.info.Load(), second.info.Load()
			if _, known := n.relatedness[pair{a, b}]; known || x == nil || y == nil {
				continue
			}
			if level, code := x.handle.GetTopologyCommonAncestor(y.handle); code == nvml.SUCCESS {
				n.relatedness[pair{a, b}] = busLink(level)
			}
		}
	}
}
