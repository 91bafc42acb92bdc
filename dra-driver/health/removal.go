package health

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// removalDelay is how long a GPU must be absent from the inventory and from the PCI bus until it counts as removed.
const removalDelay = time.Minute

// removeMissingGPUs drops the faults of GPUs that were removed: they have faults of an earlier boot and were never seen in this one, so that no
// check could ever clear their faults. A GPU that is on the bus but that the driver does not list is faulted, not removed, and so is one that
// was seen in this boot.
func (m *Monitor) removeMissingGPUs(ctx context.Context, node gpu.Node, known bool) {
	for _, name := range m.health.Missed(m.config.Boot) {
		if _, err := node.Find(name); err == nil || !known || m.config.Hardware.Present(name) {
			delete(m.missing, name)
			continue
		}
		if m.missing[name]++; m.missing[name] < int(removalDelay/m.config.Period) {
			continue
		}
		delete(m.missing, name)
		klog.FromContext(ctx).Info("GPU was removed from the node, deleting its faults", "gpu", name)
		m.health = m.health.Without(name)
	}
}
