package extended

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// offers counts the nodes on which device plugins offer extended resources. A pod that requests one of them can run
// there without a claim. It is safe for concurrent use.
type offers struct {
	mu sync.RWMutex
	// nodes is the number of nodes by resource, byNode the resources that each node offers.
	nodes  map[corev1.ResourceName]int
	byNode map[string][]corev1.ResourceName
}

func newOffers() *offers {
	return &offers{nodes: map[corev1.ResourceName]int{}, byNode: map[string][]corev1.ResourceName{}}
}

// set records the resources of a node.
func (o *offers) set(n *corev1.Node) {
	var offered []corev1.ResourceName
	for name, quantity := range n.Status.Allocatable {
		if schedutil.IsDRAExtendedResourceName(name) && !quantity.IsZero() {
			offered = append(offered, name)
		}
	}
	o.replace(n.Name, offered)
}

// remove removes a node.
func (o *offers) remove(n *corev1.Node) { o.replace(n.Name, nil) }

// replace records the resources of a node in the place of the earlier ones.
func (o *offers) replace(node string, offered []corev1.ResourceName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range o.byNode[node] {
		if o.nodes[name]--; o.nodes[name] == 0 {
			delete(o.nodes, name)
		}
	}
	delete(o.byNode, node)
	if len(offered) > 0 {
		o.byNode[node] = offered
	}
	for _, name := range offered {
		o.nodes[name]++
	}
}

// has reports whether a device plugin offers the resource on any node.
func (o *offers) has(name corev1.ResourceName) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.nodes[name] > 0
}

// handler returns the handler for the informer of nodes.
func (o *offers) handler() cache.ResourceEventHandler {
	set := func(object any) {
		if n, ok := object.(*corev1.Node); ok {
			o.set(n)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if n, ok := object.(*corev1.Node); ok {
				o.remove(n)
			}
		},
	}
}
