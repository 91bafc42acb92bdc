package policy

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// pendingDiscovery returns what is missing until discovery has run on all nodes, for messages, or an empty text. It has run on a node when its pod there is
// available. Nodes that are not Ready are not waited for. Once the policy is Ready, nodes that join and pods that are replaced are not waited for either:
// otherwise the policy of a large cluster would hardly ever be Ready.
func (r *Reconciler) pendingDiscovery(ctx context.Context, p *pass, set *appsv1.DaemonSet) (string, error) {
	live := &appsv1.DaemonSet{}
	if missing, err := r.readOperand(ctx, "DaemonSet", set, live); missing != "" || err != nil {
		return missing, err
	}
	if ready := meta.FindStatusCondition(p.Policy.Status.Conditions, v1alpha1.ConditionReady); ready != nil &&
		ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == p.Policy.Generation {
		return "", nil
	}
	// The cache may not have yet what was just written.
	if live.Annotations[render.AnnotationHash] != set.Annotations[render.AnnotationHash] || live.Status.ObservedGeneration < live.Generation {
		return "DaemonSet " + set.Name + " has not started yet", nil
	}
	missing := live.Status.DesiredNumberScheduled - live.Status.NumberAvailable
	if missing <= 0 {
		return "", nil
	}
	silent, err := r.countUnreachableNodes(ctx, live)
	if err != nil || missing <= silent {
		return "", err
	}
	return fmt.Sprintf("DaemonSet %s has not run on %d of %d nodes yet; check its pods", set.Name, missing-silent, live.Status.DesiredNumberScheduled), nil
}

// countUnreachableNodes counts the nodes that a DaemonSet selects, that are not Ready, and on which it has no ready pod.
func (r *Reconciler) countUnreachableNodes(ctx context.Context, set *appsv1.DaemonSet) (int32, error) {
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := r.Cluster.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	if err := r.Cluster.Client.List(ctx, pods, client.InNamespace(set.Namespace), client.MatchingLabels{render.LabelName: set.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list pods of DaemonSet %s: %w", set.Name, err)
	}
	runs := map[string]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		runs[pod.Spec.NodeName] = runs[pod.Spec.NodeName] || nodestate.ObservePod(pod).State == phase.PodReady
	}
	chosen := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec})
	silent := int32(0)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if nodestate.ObserveNode(node).Ready || runs[node.Name] {
			continue
		}
		is, err := chosen.Match(node)
		if err != nil {
			return 0, fmt.Errorf("read the affinity of DaemonSet %s: %w", set.Name, err)
		}
		if is {
			silent++
		}
	}
	return silent, nil
}
