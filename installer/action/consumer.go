package action

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadConsumer reads the pod that a claim is reserved for, by its name and the UIDs that reservations have for it. It returns nil when that pod uses no
// device any more: it does not exist, has ended, or the name now belongs to a pod of another UID. A reservation outlives its pod for a moment, and
// caches outlive both.
func ReadConsumer(ctx context.Context, api client.Reader, key types.NamespacedName, uids ...types.UID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	switch err := api.Get(ctx, key, pod); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s: %w", key, err)
	case !slices.Contains(uids, pod.UID), pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return nil, nil
	}
	return pod, nil
}
