package server

import (
	"context"
	"slices"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/kubelet-plugin/diagnosis"
)

// Health shows the node with what is wrong with its GPUs.
type Health interface {
	// Watch returns the node, whether it is known, and a channel that is closed as soon as any of this changes.
	Watch() (node gpu.Node, known bool, outdated <-chan struct{})
}

// healthPeriod is how often the health of all devices is sent although nothing changed. kubelet sets it to Unknown after 30 s without an update.
const healthPeriod = 10 * time.Second

// WatchHealthStatus sends the health of all possible devices of the node's GPUs: at once, when it changes and periodically, until ctx ends. Devices
// that are no longer offered are included, because claims may hold them. The helper calls it once for each stream of kubelet.
func (p *plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	var sent []kubeletplugin.DeviceHealth
	due := true
	for {
		node, known, outdated := p.Health.Watch()
		health := p.health(node, known)
		if due || !slices.Equal(sent, health) {
			select {
			case reports <- healthReport(health):
				sent, due = health, false
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-outdated:
		case <-tick.C:
			due = true
		}
	}
}

// health returns the health of the devices, without a time.
func (p *plugin) health(node gpu.Node, known bool) []kubeletplugin.DeviceHealth {
	pool := wire.PoolName(p.Node, p.Driver)
	var all []kubeletplugin.DeviceHealth
	for _, g := range node.GPUs {
		for _, use := range g.AllUses() {
			device := kubeletplugin.DeviceHealth{
				PoolName: pool, DeviceName: wire.DeviceName(gpu.Device{GPU: g.Name(), Use: use}), Health: kubeletplugin.HealthStatusUnknown,
			}
			if known {
				found := diagnosis.Of(g, use, p.Rules)
				device.Health, device.Message = kubeletplugin.HealthStatusHealthy, found.Message()
				if !found.Healthy() {
					device.Health = kubeletplugin.HealthStatusUnhealthy
				}
			}
			all = append(all, device)
		}
	}
	return all
}

// healthReport returns the health as it is now.
func healthReport(health []kubeletplugin.DeviceHealth) kubeletplugin.DeviceHealthReport {
	now := time.Now()
	devices := slices.Clone(health)
	for i := range devices {
		devices[i].LastUpdated = now
	}
	return kubeletplugin.DeviceHealthReport{Devices: devices}
}
