package podgroup

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Tracker records on which nodes the pods of groups are, from Reserve on. Pods without devices are not members of a
// group. It is safe for concurrent use.
type Tracker struct {
	mu sync.Mutex
	// nodes is by group and pod. The node of a waiting pod is empty.
	nodes map[Group]map[types.UID]string
}

// NewTracker returns an empty tracker. Its EventHandler must be added to the informer of pods.
func NewTracker() *Tracker { return &Tracker{nodes: map[Group]map[types.UID]string{}} }

// Members returns the number of recorded pods of the group, including the pod itself, and the nodes of the others,
// one entry for each pod that has a node.
func (t *Tracker) Members(of Group, pod types.UID) (size int, nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size = 1
	for uid, node := range t.nodes[of] {
		if uid == pod {
			continue
		}
		size++
		if node != "" {
			nodes = append(nodes, node)
		}
	}
	return size, nodes
}

// Place records the node of the pod; an empty node records that it waits. An empty node does not replace a recorded
// one: the informer reports a reserved pod as waiting until it is bound.
func (t *Tracker) Place(pod *corev1.Pod, node string) {
	of, ok := GroupOf(pod)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes[of] == nil {
		t.nodes[of] = map[types.UID]string{}
	}
	if node != "" || t.nodes[of][pod.UID] == "" {
		t.nodes[of][pod.UID] = node
	}
}

// Remove removes the pod until Place records it again.
func (t *Tracker) Remove(pod *corev1.Pod) {
	of, ok := GroupOf(pod)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.nodes[of], pod.UID)
	if len(t.nodes[of]) == 0 {
		delete(t.nodes, of)
	}
}

// EventHandler returns the handler for the informer of pods.
func (t *Tracker) EventHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if pod, ok := object.(*corev1.Pod); ok {
				t.observe(pod)
			}
		},
		UpdateFunc: func(before, after any) {
			was, _ := before.(*corev1.Pod)
			is, _ := after.(*corev1.Pod)
			if was == nil || is == nil {
				return
			}
			of, _ := GroupOf(was)
			if now, _ := GroupOf(is); was.UID != is.UID || of != now {
				t.Remove(was)
			}
			t.observe(is)
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				t.Remove(pod)
			}
		},
	}
}

// observe records the pod as the API server has it.
func (t *Tracker) observe(pod *corev1.Pod) {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		t.Remove(pod)
	case len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil:
		t.Place(pod, pod.Spec.NodeName)
	}
}
