package inventory

import (
	"maps"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// overlay is the state of GPUs that does not come from the hardware. It is applied to every snapshot and stays when a
// GPU is lost, cannot be read, or is removed and returns. Its maps are replaced and never modified.
type overlay struct {
	// faults are the faults in effect with severity Warning or worse, by the GPU's name, the worst first.
	faults map[string][]gpu.Fault
	// held are the reasons why GPUs are out of service, by name.
	held map[string]string
	// maintenance is the operation for which all GPUs are out of service; empty without one.
	maintenance string
}

// Diagnose sets the faults of all GPUs. Only faults in effect with severity Warning or worse are shown. When it returns,
// Node and Watch include them: the hardware is not read, and equal faults are not a change. It may be called before Run,
// so that the first published snapshot includes them.
func (i *Inventory) Diagnose(faults []gpu.Fault) {
	byGPU := map[string][]gpu.Fault{}
	for _, f := range (gpu.Health{Faults: faults}).InEffect() {
		byGPU[f.GPU] = append(byGPU[f.GPU], f)
	}
	i.updateOverlay(func(m *overlay) { m.faults = byGPU })
}

// Hold marks the GPUs with these names as out of service, with the reasons, and all others as in service. Like Diagnose,
// it takes effect at once.
func (i *Inventory) Hold(held map[string]string) {
	held = maps.Clone(held)
	i.updateOverlay(func(m *overlay) { m.held = held })
}

// Maintain marks all GPUs as out of service for the operation, or as in service if it is empty. Like Diagnose, it takes effect at once.
func (i *Inventory) Maintain(operation string) {
	i.updateOverlay(func(m *overlay) { m.maintenance = operation })
}

// updateOverlay changes the overlay and applies it to the current snapshot.
func (i *Inventory) updateOverlay(change func(*overlay)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.overlay)
	i.store(*i.current.Load())
}

// apply returns the node with the overlay. away is when the driver went away; zero while it is present. While the driver
// is away, every GPU has a driver fault, even before Diagnose reports it and until the hardware has been read again:
// otherwise the GPU would look lost, and would be reset or replaced.
func (m overlay) apply(node gpu.Node, away time.Time) gpu.Node {
	node.GPUs = slices.Clone(node.GPUs)
	for n, g := range node.GPUs {
		faults := m.faults[g.Name()]
		seen := slices.ContainsFunc(faults, func(f gpu.Fault) bool { return f.Signal == gpu.SignalDriver })
		if !away.IsZero() && !seen {
			faults = gpu.Health{Faults: append(slices.Clone(faults), driverFault(g, away))}.InEffect()
		}
		node.GPUs[n].Faults, node.GPUs[n].Held, node.GPUs[n].Maintenance = faults, m.held[g.Name()], m.maintenance
	}
	return node
}

func driverFault(g gpu.GPU, since time.Time) gpu.Fault {
	j := gpu.Rules{}.Judge(gpu.SignalDriver, 0)
	return gpu.Fault{
		GPU: g.Name(), UUID: g.UUID, Signal: gpu.SignalDriver, Severity: j.Severity, Remedy: j.Remedy, Since: since, Last: since, Count: 1,
	}
}
