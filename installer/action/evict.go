package action

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodRef identifies one pod. Another pod of the same name has another UID.
type PodRef struct {
	Namespace, Name string
	UID             types.UID
}

// RefusedEviction is an eviction that the API server refused, for example because of a PodDisruptionBudget or a webhook.
type RefusedEviction struct {
	PodRef
	Reason string
}

// EvictPods requests the eviction of each pod once, by the eviction API, which honors PodDisruptionBudgets, and returns those that the API server
// refused. Pods that do not exist any more count as evicted. The errors of requests without an answer are joined.
func (c Cluster) EvictPods(ctx context.Context, pods []PodRef) ([]RefusedEviction, error) {
	var refused []RefusedEviction
	var failed error
	for _, ref := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ref.UID}}}
		err := c.Live.SubResource("eviction").Create(ctx, pod, eviction)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		case isRefusal(err):
			refused = append(refused, RefusedEviction{PodRef: ref, Reason: refusalReason(err)})
		default:
			failed = errors.Join(failed, fmt.Errorf("evict pod %s/%s: %w", ref.Namespace, ref.Name, err))
		}
	}
	return refused, failed
}

// isRefusal reports whether the API server evaluated the eviction and rejected it. A server that timed out or is unavailable may accept it the next time.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	unavailable := apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
	return errors.As(err, &status) && !unavailable
}

// refusalReason returns the message of the PodDisruptionBudget that refuses an eviction, or else that of the API server.
func refusalReason(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if details := status.Status().Details; details != nil {
			for _, cause := range details.Causes {
				if cause.Type == policyv1.DisruptionBudgetCause {
					return cause.Message
				}
			}
		}
	}
	return err.Error()
}
