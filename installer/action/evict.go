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

// Victim is a pod that holds GPUs.
type Victim struct {
	Namespace, Name string
	UID             types.UID
}

// Refusal is an eviction that the API server refused: for a PodDisruptionBudget, for two of them, for a webhook.
type Refusal struct {
	Victim
	Reason string
}

// Evict asks for the eviction of pods by the eviction API, which honours PodDisruptionBudgets. Pods that are gone count as evicted.
type Evict struct{ Victims []Victim }

// Do performs it and returns those that were refused. A pod of the same name but another UID is left alone.
func (a Evict) Do(ctx context.Context, c Cluster) ([]Refusal, error) {
	var refused []Refusal
	var failed error
	for _, victim := range a.Victims {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: victim.Namespace, Name: victim.Name}}
		uid := victim.UID
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}
		err := c.Live.SubResource("eviction").Create(ctx, pod, eviction)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		case answered(err):
			refused = append(refused, Refusal{Victim: victim, Reason: refusal(err)})
		default:
			failed = errors.Join(failed, fmt.Errorf("evict pod %s/%s: %w", victim.Namespace, victim.Name, err))
		}
	}
	return refused, failed
}

// answered reports whether the API server looked at the eviction and said no. One that had no time for it may say yes when asked again.
func answered(err error) bool {
	var status apierrors.APIStatus
	late := apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
	return errors.As(err, &status) && !late
}

// refusal is what the API server says, with the budget's own words where it names them.
func refusal(err error) string {
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
