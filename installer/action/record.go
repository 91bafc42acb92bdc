package action

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// RecordValidated writes that the installed driver has been validated in a boot: spec.driver becomes the last good driver, and attempt, which may be nil,
// the failed attempt that still counts.
func (c Cluster) RecordValidated(ctx context.Context, node *v1alpha1.GPUNode, bootID string, attempt *v1alpha1.Attempt, now time.Time, message string) error {
	status := node.Status.DeepCopy()
	validated := v1alpha1.Validated{BootID: bootID, At: metav1.NewTime(now).Rfc3339Copy(), Message: message}
	status.LastGoodDriver = node.Spec.Driver.DeepCopy()
	if driver := node.Spec.Driver; driver != nil {
		validated.Digest = driver.Digest
	}
	status.Validated, status.Attempt = &validated, attempt
	return c.WriteNodeStatus(ctx, node, *status)
}

// RecordLastGoodDriver writes the driver that a node can return to.
func (c Cluster) RecordLastGoodDriver(ctx context.Context, node *v1alpha1.GPUNode, driver *v1alpha1.DesiredDriver) error {
	if equality.Semantic.DeepEqual(driver, node.Status.LastGoodDriver) {
		return nil
	}
	status := *node.Status.DeepCopy()
	status.LastGoodDriver = driver.DeepCopy()
	return c.WriteNodeStatus(ctx, node, status)
}

// RollBack grants the node what it had before and records the attempt that failed; a nil attempt records nothing. The attempt is written before the spec:
// it is a value and no increment, so repeating the action after a crash between the two writes counts nothing twice.
func (c Cluster) RollBack(ctx context.Context, node *v1alpha1.GPUNode, grant Grant, attempt *v1alpha1.Attempt) error {
	if attempt != nil && !equality.Semantic.DeepEqual(attempt, node.Status.Attempt) {
		status := *node.Status.DeepCopy()
		status.Attempt = attempt
		if err := c.WriteNodeStatus(ctx, node, status); err != nil {
			return err
		}
	}
	return c.WriteGrant(ctx, node, grant)
}
