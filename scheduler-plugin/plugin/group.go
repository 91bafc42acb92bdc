package plugin

import (
	"cmp"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Labels of pods that want GPUs of one NVLink clique and have no PodGroup.
const (
	// GroupLabel names the group within the pod's namespace.
	GroupLabel = "tessera.dev/group"
	// GroupSizeLabel says how many pods the group has.
	GroupSizeLabel = "tessera.dev/group-size"
)

// group names a group of pods: by a PodGroup, or else by GroupLabel.
type group struct{ namespace, podGroup, label string }

// groupOf returns the group of the pod, and false when it has none.
func groupOf(pod *corev1.Pod) (group, bool) {
	g := group{namespace: pod.Namespace, label: pod.Labels[GroupLabel]}
	if s := pod.Spec.SchedulingGroup; s != nil && s.PodGroupName != nil {
		g.podGroup, g.label = *s.PodGroupName, ""
	}
	return g, cmp.Or(g.podGroup, g.label) != ""
}

// groups knows which nodes the pods of groups are on, from the moment a node is reserved. Pods that ask
// for no devices are no members. It is safe for concurrent use.
type groups struct {
	mu sync.Mutex
	// nodes are by group and pod; a pod that waits has none.
	nodes map[group]map[types.UID]string
}

func newGroups() *groups { return &groups{nodes: map[group]map[types.UID]string{}} }

// members returns how many pods the group is known to have, the pod itself included, and the nodes of the
// others, one for each pod that has one.
func (g *groups) members(of group, pod types.UID) (size int, nodes []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size = 1
	for uid, node := range g.nodes[of] {
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

// place notes that the pod has the node, or that it waits for one. A node is not forgotten for that.
func (g *groups) place(pod *corev1.Pod, node string) {
	of, ok := groupOf(pod)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.nodes[of] == nil {
		g.nodes[of] = map[types.UID]string{}
	}
	if node != "" || g.nodes[of][pod.UID] == "" {
		g.nodes[of][pod.UID] = node
	}
}

// remove forgets the pod, until it is placed again.
func (g *groups) remove(pod *corev1.Pod) {
	of, ok := groupOf(pod)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.nodes[of], pod.UID)
	if len(g.nodes[of]) == 0 {
		delete(g.nodes, of)
	}
}

// handler follows pods.
func (g *groups) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if pod, ok := object.(*corev1.Pod); ok {
				g.observe(pod)
			}
		},
		UpdateFunc: func(before, after any) {
			was, _ := before.(*corev1.Pod)
			is, _ := after.(*corev1.Pod)
			if was == nil || is == nil {
				return
			}
			of, _ := groupOf(was)
			if now, _ := groupOf(is); was.UID != is.UID || of != now {
				g.remove(was)
			}
			g.observe(is)
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				g.remove(pod)
			}
		},
	}
}

// observe takes in a pod that the API server has.
func (g *groups) observe(pod *corev1.Pod) {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		g.remove(pod)
	case len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil:
		g.place(pod, pod.Spec.NodeName)
	}
}

// groupSize returns how many pods the group has by the word of the user, 0 when nobody says it.
func (p *Plugin) groupSize(of group, pod *corev1.Pod) int {
	if of.podGroup == "" {
		size, err := strconv.Atoi(pod.Labels[GroupSizeLabel])
		if err != nil {
			return 0
		}
		return size
	}
	object, err := p.handle.SnapshotSharedLister().PodGroups().Get(of.namespace, of.podGroup)
	if err != nil || object.Spec.SchedulingPolicy.Gang == nil {
		return 0
	}
	return int(object.Spec.SchedulingPolicy.Gang.MinCount)
}
