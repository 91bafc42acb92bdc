package node

import (
	"context"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// placeOperands writes the labels of the Node by which its operands are scheduled.
func (r *Reconciler) placeOperands(ctx context.Context, o *nodestate.Observation, labels phase.Labels) error {
	if o.KubeNode == nil {
		return nil
	}
	return r.Cluster.SetNodeLabels(ctx, o.KubeNode, action.OperandLabels(labels))
}

// updateNodeMarks writes the labels that describe the GPUs, and the readiness taint. A node that no policy selects has neither.
func (r *Reconciler) updateNodeMarks(ctx context.Context, cat *catalog.Catalog, o *nodeObservation, d phase.Decision) error {
	if o.KubeNode == nil {
		return nil
	}
	if err := r.Cluster.SetNodeLabels(ctx, o.KubeNode, gpuLabels(cat, o)); err != nil {
		return err
	}
	if cat.Policy.Spec.ReadinessTaint && o.Assignment.Managed() && o.GPUNode.Status.Validated == nil && d.Phase != v1alpha1.PhaseReady {
		return r.Cluster.AddReadinessTaint(ctx, o.KubeNode)
	}
	return r.Cluster.RemoveReadinessTaint(ctx, o.KubeNode)
}

// gpuLabels returns the labels that describe the GPUs of a node. Labels that the installer wrote and that do not apply any more have empty values.
func gpuLabels(cat *catalog.Catalog, o *nodeObservation) map[string]string {
	labels := action.FeatureLabels(o.GPUNode.Status)
	switch {
	case !o.Assignment.Chosen:
		labels = map[string]string{}
	case !*cat.Policy.Spec.FeatureLabels.Enabled:
		labels = map[string]string{v1alpha1.LabelPresent: labels[v1alpha1.LabelPresent]}
	}
	for _, key := range action.FeatureLabelKeys() {
		if _, stays := labels[key]; !stays && action.OwnsNodeLabel(o.KubeNode, key) {
			labels[key] = ""
		}
	}
	return labels
}
