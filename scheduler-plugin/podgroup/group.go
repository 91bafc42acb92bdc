package podgroup

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Labels of pods that want GPUs of one NVLink clique and have no PodGroup.
const (
	// GroupLabel is the name of the group within the pod's namespace.
	GroupLabel = "tessera.dev/group"
	// GroupSizeLabel is the number of pods of the group.
	GroupSizeLabel = "tessera.dev/group-size"
)

// Group identifies a group of pods, by a PodGroup or by GroupLabel.
type Group struct{ namespace, podGroup, label string }

// GroupOf returns the group of the pod, and false if it has none. A PodGroup takes precedence over the label.
func GroupOf(pod *corev1.Pod) (Group, bool) {
	g := Group{namespace: pod.Namespace, label: pod.Labels[GroupLabel]}
	if s := pod.Spec.SchedulingGroup; s != nil && s.PodGroupName != nil {
		g.podGroup, g.label = *s.PodGroupName, ""
	}
	return g, cmp.Or(g.podGroup, g.label) != ""
}

// DeclaredSize returns the number of pods that the user declared for the pod's group: GroupSizeLabel, or the minCount
// of a gang PodGroup. It returns 0 if there is no declaration.
func (g Group) DeclaredSize(pod *corev1.Pod, podGroups fwk.PodGroupLister) int {
	if g.podGroup == "" {
		size, err := strconv.Atoi(pod.Labels[GroupSizeLabel])
		if err != nil {
			return 0
		}
		return size
	}
	object, err := podGroups.Get(g.namespace, g.podGroup)
	if err != nil || object.Spec.SchedulingPolicy.Gang == nil {
		return 0
	}
	return int(object.Spec.SchedulingPolicy.Gang.MinCount)
}
