package index

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nomination is what is kept for a pod. It is never changed.
type nomination struct {
	pod     types.UID
	node    string
	devices []resourceapi.DeviceRequestAllocationResult
}

// Nominate keeps devices of a node for a pod that is to come: they count as held for everybody else
// (Node.For). What somebody still holds of them, such as a victim that is to be evicted, is kept from
// everybody else as soon as it is released, and what is left of their GPUs' slices already now. A later
// promise to the same pod replaces the earlier one; Redeem ends it.
func (x *Index) Nominate(pod types.UID, node string, devices []resourceapi.DeviceRequestAllocationResult) {
	x.replaceNomination(&nomination{pod, node, slices.Clone(devices)})
}

// EndNomination ends the promise to the pod, if there is one.
func (x *Index) EndNomination(pod types.UID) { x.replaceNomination(&nomination{pod: pod}) }

// replaceNomination replaces what is promised to the pod.
func (x *Index) replaceNomination(p *nomination) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var c change
	if old := x.nominations[p.pod]; old != nil {
		n := x.node(old.node)
		n.nominations = slices.DeleteFunc(slices.Clone(n.nominations), func(other *nomination) bool { return other == old })
		delete(x.nominations, p.pod)
		c.add(n)
	}
	if len(p.devices) > 0 {
		n := x.node(p.node)
		i, _ := slices.BinarySearchFunc(n.nominations, p, func(a, b *nomination) int { return cmp.Compare(a.pod, b.pod) })
		n.nominations = slices.Insert(slices.Clone(n.nominations), i, p)
		x.nominations[p.pod] = p
		c.add(n)
	}
	x.commit(c)
}
