package health

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// removalDelay is how long a GPU must be neither in the inventory nor on the bus to be gone.
const removalDelay = time.Minute

// removeMissingGPUs forgets what was wrong with GPUs that were there in another boot and are not in this one: nobody would ever see that it is over. One that is
// on the bus, though no driver knows it, is sick and not gone; so is one that was seen in this boot.
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
		klog.FromContext(ctx).Info("GPU is not on the node any more, what was wrong with it is forgotten", "gpu", name)
		m.health = m.health.Without(name)
	}
}
