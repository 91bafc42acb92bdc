package gpus

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// taints gathers the taints of the devices: one that all of them but monitors have is the GPU's.
func taints(g wire.PublishedGPU) []Taint {
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
			all[i].Since = since(all[i].Since, t.TimeAdded)
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

// Foreign reports whether a taint of the GPU is none of those that Tessera sets for health.
func Foreign(g GPU, t Taint) bool {
	_, _, health := t.signal(g.Driver)
	return !health && t.Key != wire.RemedyKey(g.Driver)
}

// signal returns of which signal, and which XID, a taint of the driver's tells.
func (t Taint) signal(driver string) (s gpu.Signal, xid int, ok bool) {
	return wire.TaintSignal(driver, resourceapi.DeviceTaint{Key: t.Key, Value: t.Value})
}

// since returns the earlier of two times; nil is none.
func since(a, b *metav1.Time) *metav1.Time {
	if a == nil || b != nil && b.Before(a) {
		return b
	}
	return a
}
