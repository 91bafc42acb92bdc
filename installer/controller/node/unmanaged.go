package node

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/remediation"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// releaseUnmanaged ends the remediations of a node in a cluster without ClusterPolicy, as mode Off does: GPUs that were not reset are released, and a
// requested reboot is not requested any more. Everything else of the node is left as it is.
func (r *Reconciler) releaseUnmanaged(ctx context.Context, gpunode *v1alpha1.GPUNode) (time.Duration, error) {
	cat := catalog.WithoutPolicy()
	o, _, err := nodestate.Read(ctx, r.Cluster, cat, gpunode)
	if err != nil {
		return 0, err
	}
	rebootRequested := o.KubeNode != nil && o.KubeNode.Labels[v1alpha1.LabelRebootRequired] != ""
	if len(o.Spec.Remediations) == 0 && len(o.Status.Remediations) == 0 && !rebootRequested {
		return 0, nil
	}
	gpus, done, err := r.Remediator.Decide(ctx, cat, o, phase.Decision{Phase: o.Status.Phase, Reason: o.Status.Reason})
	defer done()
	if err != nil {
		return 0, err
	}
	if err := r.updateRemedyStatus(ctx, o, gpus); err != nil {
		return 0, err
	}
	if labels, back := phase.MonitoringReturns(o.Observed); back {
		if err := r.placeOperands(ctx, o, labels); err != nil {
			return 0, err
		}
	}
	return gpus.RemediateNodeGPUs(ctx)
}

// updateRemedyStatus writes the part of the status that is about remediation.
func (r *Reconciler) updateRemedyStatus(ctx context.Context, o *nodestate.Observation, gpus *remediation.NodeRemediation) error {
	old := o.GPUNode.Status
	status := *old.DeepCopy()
	status.Remediations = gpus.Statuses()
	for _, c := range gpus.Conditions() {
		setCondition(&status, o, c)
	}
	r.Metrics.ObserveNode(o.GPUNode, status, o.Now)
	if equality.Semantic.DeepEqual(old, status) {
		return nil
	}
	if err := r.Cluster.WriteNodeStatus(ctx, o.GPUNode, status); err != nil {
		return err
	}
	gpus.RecordStepEvents(old.Remediations)
	return nil
}
