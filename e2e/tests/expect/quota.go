package expect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// awaitQuota returns when the API server refuses what exceeds the quota. That its status has been counted is not sufficient: the quota controller writes the
// status, and admission reads quotas from an informer in the API server. Until that one has the quota, objects are admitted and not counted
// (quotaAccessor.GetQuotas in k8s.io/apiserver/pkg/admission/plugin/resourcequota). A claim that exceeds the quota is therefore created as a dry run, which
// is counted nowhere.
func (w *Watcher) awaitQuota(ctx context.Context, s Subject) error {
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		quota, err := w.client.CoreV1().ResourceQuotas(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil || !equality.Semantic.DeepEqual(quota.Spec.Hard, quota.Status.Hard) {
			return false, err
		}
		claim, err := exceedingClaim(quota)
		if err != nil {
			return false, err
		}
		_, err = w.client.ResourceV1().ResourceClaims(s.Namespace).Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil || premature(err):
			return false, nil
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: "+s.Name+","):
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait for the quota %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// exceedingClaim returns a claim that requests one device more than the quota has of a DeviceClass.
func exceedingClaim(quota *corev1.ResourceQuota) (*resourceapi.ResourceClaim, error) {
	for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
		class, ok := strings.CutSuffix(string(name), corev1.ResourceClaimsPerClass)
		if !ok {
			continue
		}
		hard := quota.Spec.Hard[name]
		return &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "exceeds-" + quota.Name + "-"},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
				Name: "exceeding", Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: hard.Value() + 1,
				},
			}}}},
		}, nil
	}
	return nil, fmt.Errorf("it limits no devices of a DeviceClass, so that it cannot be seen whether the API server has it: %v", quota.Spec.Hard)
}
