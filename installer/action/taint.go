package action

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// RuleName is the name of the DeviceTaintRule of a node.
func RuleName(node string) string { return render.OperandMaintenance + "-" + node }

// Taint keeps new claims off the GPUs of a node. It evicts nobody.
type Taint struct {
	Node *v1alpha1.GPUNode
	// Driver is the name of the DRA driver of the node's agent, Operation what the taint is for.
	Driver, Operation string
}

// Do performs it.
func (a Taint) Do(ctx context.Context, c Cluster) error {
	pool := a.Node.Name + "-" + a.Driver
	meta := c.owned(a.Node, RuleName(a.Node.Name), render.OperandMaintenance)
	meta.Namespace = ""
	rule := &resourceapi.DeviceTaintRule{
		ObjectMeta: meta,
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &a.Driver, Pool: &pool},
			Taint: resourceapi.DeviceTaint{
				Key: v1alpha1.TaintMaintenance, Value: a.Operation, Effect: resourceapi.DeviceTaintEffectNoSchedule,
			},
		},
	}
	if err := c.Client.Create(ctx, rule, client.FieldOwner(Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("taint GPUs of node %s: %w", a.Node.Name, err)
	}
	return nil
}

// Untaint lets claims have the GPUs of a node again.
type Untaint struct{ Node string }

// Do performs it.
func (a Untaint) Do(ctx context.Context, c Cluster) error {
	rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: RuleName(a.Node)}}
	if err := c.Client.Delete(ctx, rule); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("untaint GPUs of node %s: %w", a.Node, err)
	}
	return nil
}
