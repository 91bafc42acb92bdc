package status

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
)

// write writes the Events and the status of the claim, unless it was deleted.
func (r *Reporter) write(ctx context.Context, e *statusUpdate, t *eventWriter) error {
	claim, err := r.Client.ResourceV1().ResourceClaims(e.claim.Namespace).Get(ctx, e.claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read the claim: %w", err)
	case string(claim.UID) != e.claim.UID:
		return nil
	}
	t.write(eventObjects(claim), e.notices)
	now := metav1.Now().Rfc3339Copy()
	before := r.owner.entries(claim)
	next := before
	if e.desired != nil {
		if next, err = e.desired(r.owner, claim, now); err != nil {
			return err
		}
	}
	next, notices := r.updateHealthyCondition(next, now)
	if sameEntries(before, next) {
		return nil
	}
	if err := r.apply(ctx, claim, next); err != nil {
		return err
	}
	t.write(eventObjects(claim), append(timeSliceNotices(before, next), notices...))
	return nil
}

// apply replaces this agent's entries. The write fails with a conflict if the claim has changed since it was read, so that a delayed write never
// overwrites a later one.
func (r *Reporter) apply(ctx context.Context, claim *resourceapi.ResourceClaim, entries []entry) error {
	status := resourceac.ResourceClaimStatus()
	for _, e := range entries {
		status.WithDevices(applyConfiguration(e))
	}
	config := resourceac.ResourceClaim(claim.Name, claim.Namespace).
		WithUID(claim.UID).WithResourceVersion(claim.ResourceVersion).WithStatus(status)
	options := metav1.ApplyOptions{FieldManager: r.manager(), Force: true}
	if _, err := r.Client.ResourceV1().ResourceClaims(claim.Namespace).ApplyStatus(ctx, config, options); err != nil {
		return fmt.Errorf("write the status of the claim: %w", err)
	}
	return nil
}

func applyConfiguration(e entry) *resourceac.AllocatedDeviceStatusApplyConfiguration {
	config := resourceac.AllocatedDeviceStatus().WithDriver(e.Driver).WithPool(e.Pool).WithDevice(e.Device)
	config.ShareID = e.ShareID
	if e.Data != nil {
		config.WithData(*e.Data)
	}
	for _, c := range e.Conditions {
		config.WithConditions(metaac.Condition().WithType(c.Type).WithStatus(c.Status).
			WithReason(c.Reason).WithMessage(c.Message).WithLastTransitionTime(c.LastTransitionTime))
	}
	return config
}
