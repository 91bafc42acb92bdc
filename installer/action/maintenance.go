package action

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// EnterMaintenance sets spec.maintenance, on which the node's agent refuses new Prepares. ID and Since of m are set here. A maintenance that is under way
// for the same operation keeps its ID.
func (c Cluster) EnterMaintenance(ctx context.Context, node *v1alpha1.GPUNode, m v1alpha1.Maintenance, now time.Time) error {
	if old := node.Spec.Maintenance; old != nil && old.Operation == m.Operation {
		return nil
	}
	old := node.DeepCopy()
	m.ID, m.Since = rand.String(10), metav1.NewTime(now).Rfc3339Copy()
	node.Spec.Maintenance = &m
	return c.patchNodeSpec(ctx, old, node)
}

// LeaveMaintenance removes spec.maintenance: the agent accepts Prepares again.
func (c Cluster) LeaveMaintenance(ctx context.Context, node *v1alpha1.GPUNode) error {
	if node.Spec.Maintenance == nil {
		return nil
	}
	old := node.DeepCopy()
	node.Spec.Maintenance = nil
	return c.patchNodeSpec(ctx, old, node)
}
