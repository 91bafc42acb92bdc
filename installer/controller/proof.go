package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// createNodeValidation makes what proves the node: all GPUs that are well, and a slice where one can be sliced and nobody uses any.
func (r *nodeReconciler) createNodeValidation(ctx context.Context, cat *Catalog, s *nodeObservation) error {
	v := r.validation(cat, s, s.barrier())
	v.Parts = []action.ValidationPart{action.PartGPUs}
	if *cat.Policy.Spec.Validator.MIG && s.Assignment.OffersMIG && createsMIGDevices(s.Status.Agent) && s.claims == 0 {
		v.Parts = append(v.Parts, action.PartMIG)
	}
	var err error
	if v.Scope, err = r.validationScope(ctx, s); err != nil {
		return err
	}
	return r.CreateValidation(ctx, v)
}

// validation is a proof of nothing yet.
func (r *nodeReconciler) validation(cat *Catalog, s *nodeObservation, barrier string) action.Validation {
	spec := cat.Policy.Spec
	v := action.Validation{
		Node: s.GPUNode, Barrier: barrier, Component: spec.Validator.Component,
		PullSecrets: spec.DaemonSets.ImagePullSecrets, Scheduler: scheduler(spec), Timeout: spec.Validator.Timeout.Duration,
	}
	if v.Component.Image == "" {
		v.Component.Image = r.images.Validator
	}
	return v
}

// validationScope leaves those GPUs out of the proof of a node that would make it fail or wait for ever. Who they are stands in the barrier, so that a proof which was
// begun with others is made again.
func (r *nodeReconciler) validationScope(ctx context.Context, s *nodeObservation) (action.ValidationScope, error) {
	out := s.excludedGPUs()
	if len(out) == 0 {
		return action.ValidationScope{}, nil
	}
	if agent := s.Status.Agent; agent != nil && len(out) >= int(agent.GPUs) {
		return action.ValidationScope{}, fmt.Errorf("prove node %s: none of its %d GPUs is well: %s", s.GPUNode.Name, agent.GPUs, s.describeGPUs(out))
	}
	pool, err := r.published(ctx, s, func(pool wire.Reading) bool { return names(pool, out) == len(out) })
	if err != nil {
		return action.ValidationScope{}, err
	}
	scope := action.ValidationScope{Driver: s.Assignment.DRADriver}
	for _, g := range pool.GPUs {
		if slices.Contains(out, g.Name) {
			scope.Without = append(scope.Without, g.GPU.UUID)
		}
	}
	return scope, nil
}

// names is how many of the GPUs a pool has.
func names(pool wire.Reading, gpus []string) int {
	n := 0
	for _, g := range pool.GPUs {
		if slices.Contains(gpus, g.Name) {
			n++
		}
	}
	return n
}

// excludedGPUs are the GPUs that are not proven with their node: those that are out of service for a remedy, and those of which the agent says that no new
// claims go there. One with a sick slice computes.
func (s *nodeObservation) excludedGPUs() []string {
	var out []string
	for _, order := range s.Spec.Remedies {
		out = append(out, order.GPU)
	}
	for _, f := range s.Faults() {
		if f.Device == "" {
			out = append(out, f.GPU)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// messageWithExcludedGPUs adds to the message of a node that is being proven who is left out.
func (s *nodeObservation) messageWithExcludedGPUs(d phase.Decision) string {
	out := s.excludedGPUs()
	if d.Reason != phase.ReasonValidating || len(out) == 0 {
		return d.Message
	}
	return d.Message + "; left out because they are not well: " + s.describeGPUs(out)
}

// describeGPUs are GPUs with what is wrong with them.
func (s *nodeObservation) describeGPUs(gpus []string) string {
	var all []string
	for _, gpu := range gpus {
		var wrong []string
		for _, f := range s.Faults() {
			if f.GPU == gpu {
				wrong = append(wrong, FaultTitle(f))
			}
		}
		if len(wrong) > 0 {
			gpu += " (" + strings.Join(wrong, ", ") + ")"
		}
		all = append(all, gpu)
	}
	return strings.Join(all, ", ")
}

// FaultTitle is a fault for people.
func FaultTitle(f v1alpha1.GPUFault) string {
	if f.XID != 0 {
		return fmt.Sprintf("XID %d", f.XID)
	}
	return f.Signal
}
