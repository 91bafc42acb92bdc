package plugin

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// offers knows which extended resources device plugins offer, and on how many nodes. A pod that asks for
// one of them may be served there without any claim. It is safe for concurrent use.
type offers struct {
	mu    sync.RWMutex
	nodes map[corev1.ResourceName]int
	known map[string][]corev1.ResourceName
}

func newOffers() *offers {
	return &offers{nodes: map[corev1.ResourceName]int{}, known: map[string][]corev1.ResourceName{}}
}

// set takes in a node.
func (o *offers) set(n *corev1.Node) {
	var offered []corev1.ResourceName
	for name, quantity := range n.Status.Allocatable {
		if schedutil.IsDRAExtendedResourceName(name) && !quantity.IsZero() {
			offered = append(offered, name)
		}
	}
	o.replace(n.Name, offered)
}

// remove forgets a node.
func (o *offers) remove(n *corev1.Node) { o.replace(n.Name, nil) }

func (o *offers) replace(node string, offered []corev1.ResourceName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range o.known[node] {
		if o.nodes[name]--; o.nodes[name] == 0 {
			delete(o.nodes, name)
		}
	}
	delete(o.known, node)
	if len(offered) > 0 {
		o.known[node] = offered
	}
	for _, name := range offered {
		o.nodes[name]++
	}
}

// has reports whether any node offers the resource.
func (o *offers) has(name corev1.ResourceName) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.nodes[name] > 0
}

// handler returns a handler of events of nodes.
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
