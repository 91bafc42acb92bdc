package index

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// promise is what is kept for a pod. It is never changed.
type promise struct {
	pod     types.UID
	node    string
	devices []resourceapi.DeviceRequestAllocationResult
}

// Promise keeps devices of a node for a pod that is to come: they count as held for everybody else
// (Node.For). What somebody still holds of them, such as a victim that is to be evicted, is kept from
// everybody else as soon as it is released, and what is left of their GPUs' slices already now. A later
// promise to the same pod replaces the earlier one; Redeem ends it.
func (x *Index) Promise(pod types.UID, node string, devices []resourceapi.DeviceRequestAllocationResult) {
	x.promise(&promise{pod, node, slices.Clone(devices)})
}

// Redeem ends the promise to the pod, if there is one.
func (x *Index) Redeem(pod types.UID) { x.promise(&promise{pod: pod}) }

// promise replaces what is promised to the pod.
func (x *Index) promise(p *promise) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var c change
	if old := x.promises[p.pod]; old != nil {
		n := x.node(old.node)
		n.promises = slices.DeleteFunc(slices.Clone(n.promises), func(other *promise) bool { return other == old })
		delete(x.promises, p.pod)
		c.add(n)
	}
	if len(p.devices) > 0 {
		n := x.node(p.node)
		i, _ := slices.BinarySearchFunc(n.promises, p, func(a, b *promise) int { return cmp.Compare(a.pod, b.pod) })
		n.promises = slices.Insert(slices.Clone(n.promises), i, p)
		x.promises[p.pod] = p
		c.add(n)
	}
	x.commit(c)
}
