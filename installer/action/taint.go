package action

import (
	"cmp"
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

// TaintNodeGPUs keeps new claims off all GPUs of a node, with a DeviceTaintRule, or with SliceTaints by the agent, which publishes the taint while
// spec.deviceTaint is set. The effect is NoSchedule: pods that run there stay. driver is the name of the agent's DRA driver, operation the value of the
// taint. A taint that exists is left as it is.
func (c Cluster) TaintNodeGPUs(ctx context.Context, node *v1alpha1.GPUNode, driver, operation string) error {
	if c.SliceTaints {
		return c.setDeviceTaint(ctx, node, cmp.Or(node.Spec.DeviceTaint, v1alpha1.Operation(operation)))
	}
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

// UntaintNodeGPUs removes both taints: spec.deviceTaint may have been set before the API server was upgraded.
func (c Cluster) UntaintNodeGPUs(ctx context.Context, node *v1alpha1.GPUNode) error {
	if !c.SliceTaints {
		rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: TaintRuleName(node.Name)}}
		if err := c.Client.Delete(ctx, rule); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("untaint GPUs of node %s: %w", node.Name, err)
		}
	}
	return c.setDeviceTaint(ctx, node, "")
}

// NodeGPUsTainted reports whether the GPUs of a node are tainted for a maintenance. A DeviceTaintRule that is being deleted does not count.
func (c Cluster) NodeGPUsTainted(ctx context.Context, node *v1alpha1.GPUNode) (bool, error) {
	if c.SliceTaints || node.Spec.DeviceTaint != "" {
		return node.Spec.DeviceTaint != "", nil
	}
	rule := &resourceapi.DeviceTaintRule{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: TaintRuleName(node.Name)}, rule); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read taint of node %s: %w", node.Name, err)
	}
	return rule.DeletionTimestamp == nil, nil
}

// setDeviceTaint sets spec.deviceTaint, if it has another value.
func (c Cluster) setDeviceTaint(ctx context.Context, node *v1alpha1.GPUNode, operation v1alpha1.Operation) error {
	if node.Spec.DeviceTaint == operation {
		return nil
	}
	old := node.DeepCopy()
	node.Spec.DeviceTaint = operation
	return c.patchNodeSpec(ctx, old, node)
}
