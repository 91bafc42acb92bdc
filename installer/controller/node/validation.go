package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/validation"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// createNodeValidation creates the claims and pods that validate the node: a part with all healthy GPUs, and a part with a MIG device where one can be
// created and no claim has devices of the node.
func (r *Reconciler) createNodeValidation(ctx context.Context, cat *catalog.Catalog, o *nodeObservation) error {
	v := validation.Describe(cat, o.GPUNode, o.barrier(), r.Images.Node)
	v.Parts = []action.ValidationPart{action.PartGPUs}
	if *cat.Policy.Spec.Validator.MIG && o.Assignment.OffersMIG && createsMIGDevices(o.Status.Agent) && o.claims == 0 {
		v.Parts = append(v.Parts, action.PartMIG)
	}
	var err error
	if v.Scope, err = r.validationScope(ctx, o); err != nil {
		return err
	}
	return r.Cluster.CreateValidation(ctx, v)
}

// createsMIGDevices reports whether MIG devices can be created without a reset: where the MIG mode needs one, only if it is on.
func createsMIGDevices(agent *v1alpha1.AgentStatus) bool {
	return agent != nil && agent.MIGCapable && !v1alpha1.MIGEnabled.Differs(agent)
}

// validationScope excludes the GPUs with which the validation would fail or never be scheduled. The barrier contains them, so a validation that began with
// another set of GPUs is repeated.
func (r *Reconciler) validationScope(ctx context.Context, o *nodeObservation) (action.ValidationScope, error) {
	out := o.excludedGPUs()
	if len(out) == 0 {
		return action.ValidationScope{}, nil
	}
	if agent := o.Status.Agent; agent != nil && len(out) >= int(agent.GPUs) {
		return action.ValidationScope{}, fmt.Errorf("validate node %s: all of its %d GPUs have faults: %s", o.GPUNode.Name, agent.GPUs, o.describeGPUs(out))
	}
	pool, err := r.Pools.Published(ctx, &o.Observation, func(pool wire.Reading) bool { return len(uuidsOf(pool, out)) == len(out) })
	if err != nil {
		return action.ValidationScope{}, err
	}
	return action.ValidationScope{Driver: o.Assignment.DRADriver, Without: uuidsOf(pool, out)}, nil
}

// uuidsOf returns the UUIDs of those GPUs that a pool has.
func uuidsOf(pool wire.Reading, gpus []string) []string {
	var uuids []string
	for _, g := range pool.GPUs {
		if slices.Contains(gpus, g.Name) {
			uuids = append(uuids, g.GPU.UUID)
		}
	}
	return uuids
}

// excludedGPUs returns the GPUs that are not validated with their node, sorted: those that are out of service for a remediation, and those with a fault that
// keeps new claims away. A GPU with a fault of one MIG device is validated.
func (o *nodeObservation) excludedGPUs() []string {
	var out []string
	for _, order := range o.Spec.Remediations {
		out = append(out, order.GPU)
	}
	for _, f := range o.Faults() {
		if f.Device == "" {
			out = append(out, f.GPU)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// messageWithExcludedGPUs returns the message of a decision, and for a validation the GPUs that are excluded from it.
func (o *nodeObservation) messageWithExcludedGPUs(d phase.Decision) string {
	out := o.excludedGPUs()
	if d.Reason != phase.ReasonValidating || len(out) == 0 {
		return d.Message
	}
	return d.Message + "; excluded because of faults: " + o.describeGPUs(out)
}

// describeGPUs returns GPUs with their faults, for messages.
func (o *nodeObservation) describeGPUs(gpus []string) string {
	var all []string
	for _, gpu := range gpus {
		var titles []string
		for _, f := range o.Faults() {
			if f.GPU == gpu {
				titles = append(titles, nodestate.FaultTitle(f))
			}
		}
		if len(titles) > 0 {
			gpu += " (" + strings.Join(titles, ", ") + ")"
		}
		all = append(all, gpu)
	}
	return strings.Join(all, ", ")
}
