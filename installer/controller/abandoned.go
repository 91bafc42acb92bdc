package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// WithoutPolicy is what holds for sick GPUs where there is no ClusterPolicy: the defaults, and nothing is begun.
func WithoutPolicy() *Catalog {
	policy := &v1alpha1.ClusterPolicy{}
	policy.Spec.Remediation.Mode = v1alpha1.RemediationOff
	policy.Spec = policy.Spec.Complete()
	return &Catalog{Policy: policy, known: map[driverKey]RenderedDriver{}}
}

// releaseUnmanaged does on a node of a cluster without ClusterPolicy what mode Off does: GPUs that are held and were not reset are given back, and nobody is asked for a
// reboot. Everything else of the node stays as it is.
func (r *nodeReconciler) releaseUnmanaged(ctx context.Context, cat *Catalog, gpunode *v1alpha1.GPUNode) (time.Duration, error) {
	s, pods, err := r.begin(ctx, cat, gpunode)
	if err != nil {
		return 0, err
	}
	asked := s.KubeNode != nil && s.KubeNode.Labels[v1alpha1.LabelRebootRequired] != ""
	if len(s.Spec.Remedies) == 0 && len(s.Status.Remedies) == 0 && !asked {
		return 0, nil
	}
	s.Monitored = slices.ContainsFunc(pods, isMonitoringPod)
	if err := r.examine(ctx, cat, s, phase.Decision{Phase: s.Status.Phase, Reason: s.Status.Reason}); err != nil {
		return 0, err
	}
	if err := r.updateRemedyStatus(ctx, s); err != nil {
		return 0, err
	}
	if labels, back := phase.MonitoringReturns(s.Observed); back {
		if err := r.placeOperands(ctx, s, labels); err != nil {
			return 0, err
		}
	}
	return r.remediateNodeGPUs(ctx, cat, s)
}

// updateRemedyStatus writes into the status where the sick GPUs of a node stand, and nothing else.
func (r *nodeReconciler) updateRemedyStatus(ctx context.Context, s *nodeObservation) error {
	old := s.GPUNode.Status
	status := *old.DeepCopy()
	status.Remedies = s.remedies()
	for _, c := range remediation.Conditions(s.AgentRuns(), s.Faults(), status.Remedies) {
		setCondition(&status, s, c)
	}
	r.metrics.ObserveNode(s.GPUNode, status, s.Now)
	if equality.Semantic.DeepEqual(old, status) {
		return nil
	}
	if err := r.WriteNodeStatus(ctx, s.GPUNode, status); err != nil {
		return err
	}
	r.recordStepEvents(s, old.Remedies)
	return nil
}
