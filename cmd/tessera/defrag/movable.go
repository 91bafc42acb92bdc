package defrag

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// stays decides which pods stay where they are.
type stays struct {
	client  kubernetes.Interface
	budgets []policyv1.PodDisruptionBudget
	// priority is that of the refused pod.
	priority int32
}

func newStays(ctx context.Context, client kubernetes.Interface, refused *corev1.Pod) (*stays, error) {
	budgets, err := client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cluster.ExplainError("list PodDisruptionBudgets", err)
	}
	return &stays{client, budgets.Items, corev1helpers.PodPriority(refused)}, nil
}

// keepAnnotations protect pods from evictions that only improve the use of nodes.
var keepAnnotations = map[string]string{"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}

// reason returns why a pod must not be moved; empty if it can be.
func (s *stays) reason(ctx context.Context, pod *corev1.Pod) (string, error) {
	if corev1helpers.PodPriority(pod) > s.priority {
		return "of higher priority than the refused pod", nil
	}
	if pod.DeletionTimestamp != nil {
		return "ends already", nil
	}
	for _, key := range slices.Sorted(maps.Keys(keepAnnotations)) {
		if pod.Annotations[key] == keepAnnotations[key] {
			return fmt.Sprintf("annotated %s: %q", key, keepAnnotations[key]), nil
		}
	}
	reason, err := s.ownerReason(ctx, pod)
	return cmp.Or(reason, s.budgetReason(pod)), err
}

// ownerReason returns why the controller of a pod would not replace it elsewhere without harm.
func (s *stays) ownerReason(ctx context.Context, pod *corev1.Pod) (string, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "no controller would replace it", nil
	}
	switch owner.Kind {
	case "DaemonSet", "Node":
		return "bound to its node by a " + owner.Kind, nil
	case "Job":
	default:
		return "", nil
	}
	job, err := s.client.BatchV1().Jobs(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return "its Job cannot be read: " + err.Error(), nil
	case err != nil:
		return "", cluster.ExplainError(fmt.Sprintf("read Job %s/%s", pod.Namespace, owner.Name), err)
	case !ignoresDisruption(job):
		return "its Job counts an eviction as a failure (podFailurePolicy does not ignore DisruptionTarget)", nil
	}
	return "", nil
}

// budgetReason returns which PodDisruptionBudget allows no eviction of the pod now.
func (s *stays) budgetReason(pod *corev1.Pod) string {
	for _, b := range s.budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) && b.Status.DisruptionsAllowed < 1 {
			return fmt.Sprintf("PodDisruptionBudget %s allows no eviction now", b.Name)
		}
	}
	return ""
}

// ignoresDisruption reports whether a Job replaces a pod that was evicted without counting a failure.
func ignoresDisruption(job *batchv1.Job) bool {
	return job.Spec.PodFailurePolicy != nil && slices.ContainsFunc(job.Spec.PodFailurePolicy.Rules, func(r batchv1.PodFailurePolicyRule) bool {
		return r.Action == batchv1.PodFailurePolicyActionIgnore && slices.ContainsFunc(r.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return c.Type == corev1.DisruptionTarget && (c.Status == corev1.ConditionTrue || c.Status == "")
		})
	})
}
