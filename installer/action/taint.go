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

// TaintRuleName returns the name of a node's DeviceTaintRule.
func TaintRuleName(node string) string { return render.OperandMaintenance + "-" + node }

// TaintNodeGPUs creates the DeviceTaintRule that keeps new claims off all GPUs of a node. Its effect is NoSchedule: pods that run there stay. driver is
// the name of the agent's DRA driver, operation the value of the taint. A rule that exists is left as it is.
func (c Cluster) TaintNodeGPUs(ctx context.Context, node *v1alpha1.GPUNode, driver, operation string) error {
	pool := node.Name + "-" + driver
	meta := c.ownedBy(node, TaintRuleName(node.Name), render.OperandMaintenance)
	meta.Namespace = ""
	rule := &resourceapi.DeviceTaintRule{
		ObjectMeta: meta,
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &driver, Pool: &pool},
			Taint: resourceapi.DeviceTaint{
				Key: v1alpha1.TaintMaintenance, Value: operation, Effect: resourceapi.DeviceTaintEffectNoSchedule,
			},
		},
	}
	if err := c.Client.Create(ctx, rule, client.FieldOwner(Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("taint GPUs of node %s: %w", node.Name, err)
	}
	return nil
}

// UntaintNodeGPUs deletes the DeviceTaintRule of a node.
func (c Cluster) UntaintNodeGPUs(ctx context.Context, node string) error {
	rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: TaintRuleName(node)}}
	if err := c.Client.Delete(ctx, rule); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("untaint GPUs of node %s: %w", node, err)
	}
	return nil
}
