package gpus

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// collectTaints merges the taints of the GPU's devices. A taint that all devices but monitors have is one of the GPU: its list of devices is nil.
func collectTaints(g wire.PublishedGPU) []Taint {
	var all []Taint
	for _, d := range g.Devices {
		for _, t := range d.Taints {
			i := slices.IndexFunc(all, func(known Taint) bool {
				return known.Key == t.Key && known.Value == t.Value && known.Effect == string(t.Effect)
			})
			if i < 0 {
				i = len(all)
				all = append(all, Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
			}
			all[i].Devices = append(all[i].Devices, d.Name)
			all[i].Since = earlier(all[i].Since, t.TimeAdded)
		}
	}
	for i := range all {
		if !slices.ContainsFunc(g.Devices, func(d wire.PublishedDevice) bool {
			return d.Use.Shape != gpu.Monitor && !slices.Contains(all[i].Devices, d.Name)
		}) {
			all[i].Devices = nil
		}
	}
	return all
}

// IsForeignTaint reports whether Tessera did not set the taint.
func IsForeignTaint(g GPU, t Taint) bool {
	_, _, health := t.signal(g.Driver)
	return !health && t.Key != wire.RemedyKey(g.Driver) && t.Key != wire.MaintenanceKey
}

// signal returns the signal, and the number of an XID, of a taint of the driver.
func (t Taint) signal(driver string) (s gpu.Signal, xid int, ok bool) {
	return wire.TaintSignal(driver, resourceapi.DeviceTaint{Key: t.Key, Value: t.Value})
}

// earlier returns the earlier of two times; nil is no time.
func earlier(a, b *metav1.Time) *metav1.Time {
	if a == nil || b != nil && b.Before(a) {
		return b
	}
	return a
}
