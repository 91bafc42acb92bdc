package index

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nomination reserves devices of a node for a pod. It is immutable.
type nomination struct {
	pod     types.UID
	node    string
	devices []resourceapi.DeviceRequestAllocationResult
}

// Nominate reserves devices of a node for a pod that is expected to be scheduled: they count as held for all other pods
// (Node.ForPod). Devices that a claim still holds, such as those of a preemption victim, are reserved from the moment
// of their release, and the free memory slices that they need are withheld immediately. A later nomination of the same
// pod replaces the earlier one. EndNomination ends it.
func (x *Index) Nominate(pod types.UID, node string, devices []resourceapi.DeviceRequestAllocationResult) {
	x.replaceNomination(&nomination{pod, node, slices.Clone(devices)})
}

// EndNomination removes the nomination of the pod, if there is one.
func (x *Index) EndNomination(pod types.UID) { x.replaceNomination(&nomination{pod: pod}) }

// replaceNomination replaces the nomination of the pod. A nomination without devices removes it.
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
