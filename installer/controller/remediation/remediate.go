package remediation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/controller/validation"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// RemediateNodeGPUs performs what was decided about each GPU, and returns the time after which to decide again; 0 means never. A GPU that fails does not
// stop the others; the errors are joined.
//
// The status must be written before: it has the ID of an attempt before the order with that ID exists, so that after a crash between the two the order is
// written again with the same ID and not as a second attempt.
func (n *NodeRemediation) RemediateNodeGPUs(ctx context.Context) (time.Duration, error) {
	failed := n.labelRebootRequired(ctx)
	var after time.Duration
	for i := range n.gpus {
		g := &n.gpus[i]
		err := g.failed
		if err == nil {
			err = n.remediateGPU(ctx, g)
		}
		// A conflict is no obstacle: the object changed since it was read, and the next reconcile decides again.
		if !apierrors.IsConflict(err) {
			n.Obstacles.Set(n.key(g), string(g.decision.Action), err)
		}
		failed, after = errors.Join(failed, err), trigger.Sooner(after, g.decision.After)
	}
	return after, failed
}

// remediateGPU performs the action that was decided about one GPU.
func (n *NodeRemediation) remediateGPU(ctx context.Context, g *gpuRemediation) error {
	node := n.node.GPUNode
	switch g.decision.Action {
	case remediation.Wait:
		return nil
	case remediation.Direct:
		return n.Cluster.WriteRemedyOrder(ctx, node, g.decision.Order)
	case remediation.Evict:
		return n.Drainer.Evict(ctx, node, n.key(g), g.victims)
	case remediation.Validate:
		return n.createGPUValidation(ctx, g)
	case remediation.EndValidate:
		return n.Cluster.DeleteValidation(ctx, node.Name, action.GPUValidationPart(g.GPU))
	case remediation.Release:
		return n.releaseGPU(ctx, g)
	}
	return fmt.Errorf("perform %q on GPU %s of node %s: no such action", g.decision.Action, g.GPU, node.Name)
}

// releaseGPU ends the remediation of a GPU: its record is added to the history and its order removed. Metric and Event follow the record, which is
// written once, although the action may be repeated.
func (n *NodeRemediation) releaseGPU(ctx context.Context, g *gpuRemediation) error {
	n.Drainer.Clear(n.key(g))
	recorded, err := n.Cluster.ReleaseGPU(ctx, n.node.GPUNode, g.GPU, g.decision.Record)
	if recorded {
		n.Metrics.CountRemediation(g.decision.Record.Outcome)
		n.recordEndEvent(*g.decision.Record)
	}
	return err
}

// createGPUValidation creates the claim and the pod that validate one GPU. The claim selects the GPU by the UUID that its agent publishes, so the device
// must be published again after the reset.
func (n *NodeRemediation) createGPUValidation(ctx context.Context, g *gpuRemediation) error {
	indexOf := func(pool wire.Reading) int {
		return slices.IndexFunc(pool.GPUs, func(published wire.PublishedGPU) bool { return published.Name == g.GPU && published.GPU.UUID != "" })
	}
	pool, err := n.Pools.Published(ctx, n.node, func(pool wire.Reading) bool { return indexOf(pool) >= 0 })
	if err != nil {
		return err
	}
	at := indexOf(pool)
	if at < 0 {
		return fmt.Errorf("validate GPU %s of node %s: the node agent does not publish it; see the agent's log", g.GPU, n.node.GPUNode.Name)
	}
	v := validation.Describe(n.catalog, n.node.GPUNode, g.Order.ID, n.NodeImage)
	v.Parts = []action.ValidationPart{action.GPUValidationPart(g.GPU)}
	v.Scope = action.ValidationScope{Driver: n.node.Assignment.DRADriver, Only: pool.GPUs[at].GPU.UUID}
	return n.Cluster.CreateValidation(ctx, v)
}

// labelRebootRequired sets the label of the Node that requests a reboot, or removes it, according to the condition of the GPUNode, which the caller has
// written.
func (n *NodeRemediation) labelRebootRequired(ctx context.Context) error {
	if n.node.KubeNode == nil {
		return nil
	}
	value := ""
	if meta.IsStatusConditionTrue(n.node.GPUNode.Status.Conditions, v1alpha1.ConditionRebootRequired) {
		value = "true"
	}
	return n.Cluster.SetNodeLabels(ctx, n.node.KubeNode, map[string]string{v1alpha1.LabelRebootRequired: value})
}

// key returns the key of a GPU for obstacles and refused evictions.
func (n *NodeRemediation) key(g *gpuRemediation) string {
	return report.GPUKey(n.node.GPUNode.Name, g.GPU)
}
