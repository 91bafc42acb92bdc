package gpus

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// ailments returns what is wrong with the GPU, the worst first: what the node's agent says in the GPUNode and, as far as that says
// nothing of a signal, what the taints of its devices tell. node is nil where the cluster has no GPUNode for it.
func ailments(r wire.Reading, g wire.PublishedGPU, node *v1alpha1.GPUNode) []Ailment {
	var all []Ailment
	for _, f := range faults(node, g.Name) {
		all = append(all, told(g, f))
	}
	said := slices.Clone(all)
	for _, t := range taints(g) {
		signal, xid, ours := t.signal(r.Driver)
		if !ours || slices.ContainsFunc(said, func(a Ailment) bool { return a.Signal == string(signal) }) {
			continue
		}
		all = append(all, shown(g, signal, xid, t))
	}
	slices.SortStableFunc(all, func(a, b Ailment) int { return cmp.Compare(Rank(b.Severity), Rank(a.Severity)) })
	return all
}

// feel adds the health of the GPU and of those who hold a part.
func (g *GPU) feel(r wire.Reading, published wire.PublishedGPU, node *v1alpha1.GPUNode) {
	g.Ailments, g.Held = ailments(r, published, node), held(r, published, node)
	for i := range g.Holders {
		for _, a := range g.Ailments {
			if g.Holders[i].Severity == "" && a.Affects(g.Holders[i].Device) {
				g.Holders[i].Severity = a.Severity
			}
		}
	}
}

// faults returns what the agent says of the GPU.
func faults(node *v1alpha1.GPUNode, name string) []v1alpha1.GPUFault {
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

// told is a fault as the agent says it.
func told(g wire.PublishedGPU, f v1alpha1.GPUFault) Ailment {
	a := Ailment{Severity: f.Severity, Signal: f.Signal, XID: int(f.XID), Remedy: f.Remedy, Message: f.Message, Since: &f.Since}
	if f.Device == "" {
		return a
	}
	i := slices.IndexFunc(g.Devices, func(d wire.PublishedDevice) bool { return d.Name == f.Device })
	if i < 0 {
		a.Devices = []string{f.Device}
		return a
	}
	part := gpu.Fault{Placement: g.Devices[i].Use.Placement}
	for _, d := range g.Devices {
		if part.Affects(d.Use) {
			a.Devices = append(a.Devices, d.Name)
		}
	}
	a.Slices = numbers(part.Placement.Mask())
	return a
}

// shown is a fault as a taint tells it: less exactly, because NoSchedule is both Critical and Fatal.
func shown(g wire.PublishedGPU, signal gpu.Signal, xid int, t Taint) Ailment {
	a := Ailment{Signal: string(signal), XID: xid, Since: t.Since, Devices: t.Devices}
	judged := gpu.Rules{}.Judge(signal, xid)
	a.Remedy, a.Severity = judged.Remedy.String(), gpu.Warning.String()
	switch resourceapi.DeviceTaintEffect(t.Effect) {
	case resourceapi.DeviceTaintEffectNoExecute:
		a.Severity = gpu.Fatal.String()
	case resourceapi.DeviceTaintEffectNoSchedule:
		a.Severity = max(gpu.Critical, judged.Severity).String()
	case resourceapi.DeviceTaintEffectNone:
	}
	if len(t.Devices) > 0 {
		a.Slices = sliced(g, t.Devices)
	}
	return a
}

// sliced returns the memory slices that no device without the taint has: the taint is on every device that shares one of them.
func sliced(g wire.PublishedGPU, tainted []string) []int {
	sick := gpu.SpanMask(0, g.GPU.Geometry.Slices())
	for _, d := range g.Devices {
		if d.Use.Shape == gpu.MIG && !slices.Contains(tainted, d.Name) {
			sick &^= d.Use.Placement.Mask()
		}
	}
	return numbers(sick)
}

// held returns why the GPU is out of service; nil when it is not.
func held(r wire.Reading, g wire.PublishedGPU, node *v1alpha1.GPUNode) *Held {
	var h *Held
	for _, t := range taints(g) {
		if t.Key == wire.RemedyKey(r.Driver) {
			h = &Held{Since: t.Since, Reason: t.Value}
		}
	}
	if node == nil {
		return h
	}
	for _, order := range node.Spec.Remedies {
		if order.GPU == g.Name {
			h = &Held{Since: &order.Since, Reason: order.Reason}
		}
	}
	if h == nil {
		return nil
	}
	for _, s := range node.Status.Remedies {
		if s.GPU == g.Name {
			h.Step = string(s.Step)
		}
	}
	return h
}

// Rank orders severities by their names, the least first; one that this release does not know is Critical.
func Rank(severity string) int {
	var s gpu.Severity
	if s.UnmarshalText([]byte(severity)) != nil {
		return int(gpu.Critical)
	}
	return int(s)
}

// String names the ailment, such as XID 79.
func (a Ailment) String() string { return gpu.Fault{Signal: gpu.Signal(a.Signal), XID: a.XID}.String() }

// Affects reports whether the device has part in it.
func (a Ailment) Affects(device string) bool {
	return len(a.Devices) == 0 || slices.Contains(a.Devices, device)
}

// partial reports whether it is of a part of the GPU only.
func (a Ailment) partial() bool { return len(a.Devices) > 0 }

// closed reports whether no claim gets the GPU, as long as it tolerates nothing.
func (g GPU) closed() bool {
	return g.Held != nil || slices.ContainsFunc(g.Ailments, func(a Ailment) bool { return !a.partial() && Rank(a.Severity) > int(gpu.Warning) })
}
