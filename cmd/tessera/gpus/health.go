package gpus

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// faultsOf returns the faults of the GPU, the most severe first. Source is the agent's report in the GPUNode; a signal that the report does not have is
// taken from the taints of the GPU's devices. node is nil without a GPUNode.
func faultsOf(r wire.Reading, g wire.PublishedGPU, node *v1alpha1.GPUNode) []Fault {
	var all []Fault
	for _, f := range reportedFaults(node, g.Name) {
		all = append(all, faultFromReport(g, f))
	}
	reported := slices.Clone(all)
	for _, t := range collectTaints(g) {
		signal, xid, ours := t.signal(r.Driver)
		if !ours || slices.ContainsFunc(reported, func(f Fault) bool { return f.Signal == string(signal) }) {
			continue
		}
		all = append(all, faultFromTaint(g, signal, xid, t))
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(SeverityRank(b.Severity), SeverityRank(a.Severity)) })
	return all
}

// addHealth sets the faults of the GPU, whether it is held, and the severity of each holder.
func (g *GPU) addHealth(r wire.Reading, published wire.PublishedGPU, node *v1alpha1.GPUNode) {
	g.Faults, g.Held = faultsOf(r, published, node), heldState(r, published, node)
	for i := range g.Holders {
		for _, f := range g.Faults {
			if g.Holders[i].Severity == "" && f.Affects(g.Holders[i].Device) {
				g.Holders[i].Severity = f.Severity
			}
		}
	}
}

// reportedFaults returns the faults of the GPU in the agent's report.
func reportedFaults(node *v1alpha1.GPUNode, name string) []v1alpha1.GPUFault {
	if node == nil || node.Status.Agent == nil {
		return nil
	}
	var found []v1alpha1.GPUFault
	for _, f := range node.Status.Agent.Faults {
		if f.GPU == name {
			found = append(found, f)
		}
	}
	return found
}

// faultFromReport returns a fault of the agent's report. The report names at most one MIG device; the devices that share memory slices with it
// are affected, too.
func faultFromReport(g wire.PublishedGPU, reported v1alpha1.GPUFault) Fault {
	f := Fault{
		Severity: reported.Severity, Signal: reported.Signal, XID: int(reported.XID), Remedy: reported.Remedy,
		Message: reported.Message, Since: &reported.Since,
	}
	if reported.Device == "" {
		return f
	}
	i := slices.IndexFunc(g.Devices, func(d wire.PublishedDevice) bool { return d.Name == reported.Device })
	if i < 0 {
		f.Devices = []string{reported.Device}
		return f
	}
	part := gpu.Fault{Placement: g.Devices[i].Use.Placement}
	for _, d := range g.Devices {
		if part.Affects(d.Use) {
			f.Devices = append(f.Devices, d.Name)
		}
	}
	f.MemorySlices = sliceNumbers(part.Placement.Mask())
	return f
}

// faultFromTaint returns the fault of a taint. The severity is less exact than in a report: the effect NoSchedule is used for Critical and Fatal.
func faultFromTaint(g wire.PublishedGPU, signal gpu.Signal, xid int, t Taint) Fault {
	f := Fault{Signal: string(signal), XID: xid, Since: t.Since, Devices: t.Devices}
	judged := gpu.Rules{}.Judge(signal, xid)
	f.Remedy, f.Severity = judged.Remedy.String(), gpu.Warning.String()
	switch resourceapi.DeviceTaintEffect(t.Effect) {
	case resourceapi.DeviceTaintEffectNoExecute:
		f.Severity = gpu.Fatal.String()
	case resourceapi.DeviceTaintEffectNoSchedule:
		f.Severity = max(gpu.Critical, judged.Severity).String()
	case resourceapi.DeviceTaintEffectNone:
	}
	if len(t.Devices) > 0 {
		f.MemorySlices = taintedSlices(g, t.Devices)
	}
	return f
}

// taintedSlices returns the affected memory slices. A taint of a MIG device is on every device that overlaps with it, so the affected slices are those
// that no untainted MIG device has.
func taintedSlices(g wire.PublishedGPU, tainted []string) []int {
	affected := gpu.SpanMask(0, g.GPU.Geometry.Slices())
	for _, d := range g.Devices {
		if d.Use.Shape == gpu.MIG && !slices.Contains(tainted, d.Name) {
			affected &^= d.Use.Placement.Mask()
		}
	}
	return sliceNumbers(affected)
}

// heldState returns why the GPU is out of service for remediation, nil when it is not. The GPUNode's order takes precedence over the taint.
func heldState(r wire.Reading, g wire.PublishedGPU, node *v1alpha1.GPUNode) *Held {
	var h *Held
	for _, t := range collectTaints(g) {
		if t.Key == wire.RemedyKey(r.Driver) {
			h = &Held{Since: t.Since, Reason: t.Value}
		}
	}
	if node == nil {
		return h
	}
	for _, order := range node.Spec.Remediations {
		if order.GPU == g.Name {
			h = &Held{Since: &order.Since, Reason: order.Reason}
		}
	}
	if h == nil {
		return nil
	}
	for _, s := range node.Status.Remediations {
		if s.GPU == g.Name {
			h.Step = string(s.Step)
		}
	}
	return h
}

// SeverityRank orders severities by name, the least severe first. An unknown name ranks as Critical.
func SeverityRank(severity string) int {
	var s gpu.Severity
	if s.UnmarshalText([]byte(severity)) != nil {
		return int(gpu.Critical)
	}
	return int(s)
}

// String returns the name of the fault, such as "XID 79".
func (f Fault) String() string { return gpu.Fault{Signal: gpu.Signal(f.Signal), XID: f.XID}.String() }

// Affects reports whether the fault affects the device.
func (f Fault) Affects(device string) bool {
	return len(f.Devices) == 0 || slices.Contains(f.Devices, device)
}

// partial reports whether the fault is limited to a part of the GPU.
func (f Fault) partial() bool { return len(f.Devices) > 0 }

// unavailable reports whether no claim without tolerations can get any device of the GPU.
func (g GPU) unavailable() bool {
	return g.Held != nil || slices.ContainsFunc(g.Faults, func(f Fault) bool { return !f.partial() && SeverityRank(f.Severity) > int(gpu.Warning) })
}
