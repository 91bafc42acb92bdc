package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// remediateNodeGPUs does what was decided about the sick GPUs of a node, and says when to look again. One that cannot be treated does not keep the others from it.
func (r *nodeReconciler) remediateNodeGPUs(ctx context.Context, cat *Catalog, s *nodeObservation) (time.Duration, error) {
	failed := r.labelRebootRequired(ctx, s)
	var after time.Duration
	for i := range s.patients {
		p := &s.patients[i]
		err := p.failed
		if err == nil {
			err = r.remediateGPU(ctx, cat, s, p)
		}
		if !apierrors.IsConflict(err) {
			r.obstacles.Set(GPUKey(s.GPUNode.Name, p.GPU), string(p.decision.Action), err)
		}
		failed, after = errors.Join(failed, err), Sooner(after, p.decision.After)
	}
	return after, failed
}

// remediateGPU does what was decided about one GPU.
func (r *nodeReconciler) remediateGPU(ctx context.Context, cat *Catalog, s *nodeObservation, p *gpuRemediation) error {
	node := s.GPUNode
	switch p.decision.Action {
	case remediation.Wait:
		return nil
	case remediation.Direct:
		return r.WriteRemedyOrder(ctx, node, p.decision.Order)
	case remediation.Evict:
		return r.evict(ctx, s, GPUKey(node.Name, p.GPU), p.victims)
	case remediation.Validate:
		return r.validateGPU(ctx, cat, s, p)
	case remediation.EndValidate:
		return r.DeleteValidation(ctx, node.Name, action.GPUValidationPart(p.GPU))
	case remediation.Release:
		r.drainer.refused.set(GPUKey(node.Name, p.GPU), nil)
		recorded, err := r.ReleaseGPU(ctx, node, p.GPU, p.decision.Record)
		if recorded {
			r.metrics.remediations.WithLabelValues(string(p.decision.Record.Outcome)).Inc()
			r.recordEndEvent(s, *p.decision.Record)
		}
		return err
	}
	return fmt.Errorf("perform %q on GPU %s of node %s: no such action", p.decision.Action, p.GPU, node.Name)
}

// validateGPU makes what proves one GPU.
func (r *nodeReconciler) validateGPU(ctx context.Context, cat *Catalog, s *nodeObservation, p *gpuRemediation) error {
	offers := func(pool wire.Reading) int {
		return slices.IndexFunc(pool.GPUs, func(g wire.PublishedGPU) bool { return g.Name == p.GPU && g.GPU.UUID != "" })
	}
	pool, err := r.published(ctx, s, func(pool wire.Reading) bool { return offers(pool) >= 0 })
	if err != nil {
		return err
	}
	at := offers(pool)
	if at < 0 || p.Order == nil {
		return fmt.Errorf("prove GPU %s of node %s: the node agent does not publish it: see its log", p.GPU, s.GPUNode.Name)
	}
	v := r.validation(cat, s, p.Order.ID)
	v.Parts = []action.ValidationPart{action.GPUValidationPart(p.GPU)}
	v.Scope = action.ValidationScope{Driver: s.Assignment.DRADriver, Only: pool.GPUs[at].GPU.UUID}
	return r.CreateValidation(ctx, v)
}

// labelRebootRequired writes the label of the Node by which a reboot is asked for, or takes it away, as the GPUNode's condition says.
func (r *nodeReconciler) labelRebootRequired(ctx context.Context, s *nodeObservation) error {
	if s.KubeNode == nil {
		return nil
	}
	asked := ""
	if meta.IsStatusConditionTrue(s.GPUNode.Status.Conditions, v1alpha1.ConditionRebootRequired) {
		asked = "true"
	}
	return r.SetNodeLabels(ctx, s.KubeNode, map[string]string{v1alpha1.LabelRebootRequired: asked})
}

// remedies are where the sick GPUs of a node stand, as its status has them.
func (s *nodeObservation) remedies() []v1alpha1.RemedyStatus {
	var list []v1alpha1.RemedyStatus
	for _, p := range s.patients {
		if p.decision.Status != nil {
			list = append(list, *p.decision.Status)
		}
	}
	return list
}

// recordStepEvents tells of the steps of remediations, on the GPUNode and on the Node, where people look.
func (r *nodeReconciler) recordStepEvents(s *nodeObservation, old []v1alpha1.RemedyStatus) {
	for _, now := range s.remedies() {
		before := v1alpha1.RemedyStatus{}
		if stood := findCopy(old, func(o v1alpha1.RemedyStatus) bool { return o.GPU == now.GPU }); stood != nil {
			before = *stood
		}
		if before.Step == now.Step && before.ID == now.ID {
			continue
		}
		if reason, kind := stepEvent(before, now); reason != "" {
			r.recordGPUEvent(s, kind, reason, now.GPU+": "+now.Message)
		}
	}
}

// stepEvent is the event of a step; none for those that nobody waits for.
func stepEvent(before, now v1alpha1.RemedyStatus) (reason, kind string) {
	switch now.Step {
	case v1alpha1.RemedySuggested:
		return "RemediationSuggested", corev1.EventTypeNormal
	case v1alpha1.RemedyHold:
		return "RemediationBegan", corev1.EventTypeNormal
	case v1alpha1.RemedyResetGPU:
		if before.Step == v1alpha1.RemedyDrain || before.Step == v1alpha1.RemedyHold {
			return "GPUDrained", corev1.EventTypeNormal
		}
	case v1alpha1.RemedyValidate:
		if before.Step == v1alpha1.RemedyResetGPU {
			return "GPUReset", corev1.EventTypeNormal
		}
	case v1alpha1.RemedyRebootRequested:
		return "RebootRequired", corev1.EventTypeWarning
	case v1alpha1.RemedyReplace:
		return "ReplacementRequired", corev1.EventTypeWarning
	case v1alpha1.RemedyWaiting, v1alpha1.RemedyDrain, v1alpha1.RemedyRestore:
	}
	return "", ""
}

// recordEndEvent tells how a remediation ended.
func (r *nodeReconciler) recordEndEvent(s *nodeObservation, record v1alpha1.RemedyRecord) {
	reason, kind := "RemediationStopped", corev1.EventTypeNormal
	switch record.Outcome {
	case v1alpha1.OutcomeRecovered:
		reason = "GPURecovered"
	case v1alpha1.OutcomeFailed:
		reason, kind = "RemediationFailed", corev1.EventTypeWarning
	case v1alpha1.OutcomeStopped:
	}
	r.recordGPUEvent(s, kind, reason, record.GPU+": "+record.Message)
}

func (r *nodeReconciler) recordGPUEvent(s *nodeObservation, kind, reason, text string) {
	r.recorder.Eventf(s.GPUNode, nil, kind, reason, "Remedy", "%s", note(text))
	if s.KubeNode != nil {
		r.recorder.Eventf(s.KubeNode, nil, kind, reason, "Remedy", "%s", note(text))
	}
}
