package harness

import (
	"context"
	"sync"

	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

// Health is kubelet's record of the health of an agent's devices: the last report. It is safe for concurrent use.
type Health struct {
	mutex   sync.Mutex
	devices map[string]*drahealthv1.DeviceHealth
	reports int
}

// WatchHealth receives the agent's health reports, as kubelet does, until ctx or the agent ends. It calls tell, which
// may be nil, after every report.
func (k *Kubelet) WatchHealth(ctx context.Context, h *Health, tell func()) error {
	stream, err := k.health.NodeWatchResources(ctx, &drahealthv1.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		h.take(report.GetDevices())
		if tell != nil {
			tell()
		}
	}
}

// take stores a report. A report lists all devices: an omitted device is removed.
func (h *Health) take(devices []*drahealthv1.DeviceHealth) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.reports++
	h.devices = map[string]*drahealthv1.DeviceHealth{}
	for _, d := range devices {
		h.devices[d.GetDevice().GetDeviceName()] = d
	}
}

// Of returns the last reported health of the device and its message. An unlisted device is Unknown.
func (h *Health) Of(device string) (drahealthv1.HealthStatus, string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	d := h.devices[device]
	return d.GetHealth(), d.GetMessage()
}

// Unhealthy returns the devices that are not healthy, with their messages.
func (h *Health) Unhealthy() map[string]string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	sick := map[string]string{}
	for name, d := range h.devices {
		if d.GetHealth() != drahealthv1.HealthStatus_HEALTHY {
			sick[name] = d.GetMessage()
		}
	}
	return sick
}

// Known returns the number of listed devices and the number of reports.
func (h *Health) Known() (devices, reports int) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return len(h.devices), h.reports
}
