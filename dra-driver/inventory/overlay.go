package inventory

import (
	"maps"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// overlay are what others know of the GPUs: it is shown with them whatever the hardware says, and stays when a GPU is lost, cannot be
// read, or goes and comes back. A value is never changed, only replaced.
type overlay struct {
	// faults are in effect, Warning or worse, by the GPU's name, the worst first.
	faults map[string][]gpu.Fault
	// held are why GPUs are out of service, by name.
	held map[string]string
}

// Diagnose has the GPUs shown with these faults from now on, of which those in effect count, Warning or worse. When it returns, Node and
// Watch know them: nothing is read for it, and what says the same as before is no news. It may be called before Run, so that what is first
// published has them.
func (i *Inventory) Diagnose(faults []gpu.Fault) {
	byGPU := map[string][]gpu.Fault{}
	for _, f := range (gpu.Health{Faults: faults}).InEffect() {
		byGPU[f.GPU] = append(byGPU[f.GPU], f)
	}
	i.updateOverlay(func(m *overlay) { m.faults = byGPU })
}

// Hold has the GPUs of these names shown as out of service from now on, with the reasons, and all others not, in the way of Diagnose.
func (i *Inventory) Hold(held map[string]string) {
	held = maps.Clone(held)
	i.updateOverlay(func(m *overlay) { m.held = held })
}

// updateOverlay changes the marks and shows them.
func (i *Inventory) updateOverlay(change func(*overlay)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.overlay)
	i.store(*i.current.Load())
}

// apply returns the node with the marks. While the driver is away, every GPU has that for a fault, also until whoever diagnoses has seen it, and until
// the hardware was read again: nobody is to take it for a GPU that is lost, and to reset or replace it.
func (m overlay) apply(node gpu.Node, away time.Time) gpu.Node {
	node.GPUs = slices.Clone(node.GPUs)
	for n, g := range node.GPUs {
		faults := m.faults[g.Name()]
		seen := slices.ContainsFunc(faults, func(f gpu.Fault) bool { return f.Signal == gpu.SignalDriver })
		if !away.IsZero() && !seen {
			faults = gpu.Health{Faults: append(slices.Clone(faults), driverFault(g, away))}.InEffect()
		}
		node.GPUs[n].Faults, node.GPUs[n].Held = faults, m.held[g.Name()]
	}
	return node
}

func driverFault(g gpu.GPU, since time.Time) gpu.Fault {
	j := gpu.Rules{}.Judge(gpu.SignalDriver, 0)
	return gpu.Fault{
		GPU: g.Name(), UUID: g.UUID, Signal: gpu.SignalDriver, Severity: j.Severity, Remedy: j.Remedy, Since: since, Last: since, Count: 1,
	}
}
