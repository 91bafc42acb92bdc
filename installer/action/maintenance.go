package action

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Enter takes the GPUs of a node out of service. A maintenance that has begun for the same operation goes on under its ID.
type Enter struct {
	Node        *v1alpha1.GPUNode
	Maintenance v1alpha1.Maintenance
	Now         time.Time
}

// Do performs it.
func (a Enter) Do(ctx context.Context, c Cluster) error {
	if m := a.Node.Spec.Maintenance; m != nil && m.Operation == a.Maintenance.Operation {
		return nil
	}
	old := a.Node.DeepCopy()
	m := a.Maintenance
	m.ID, m.Since = rand.String(10), metav1.NewTime(a.Now).Rfc3339Copy()
	a.Node.Spec.Maintenance = &m
	return c.patchSpec(ctx, old, a.Node)
}

// Leave puts the GPUs of a node back into service.
type Leave struct{ Node *v1alpha1.GPUNode }

// Do performs it.
func (a Leave) Do(ctx context.Context, c Cluster) error {
	if a.Node.Spec.Maintenance == nil {
		return nil
	}
	old := a.Node.DeepCopy()
	a.Node.Spec.Maintenance = nil
	return c.patchSpec(ctx, old, a.Node)
}
