package node

import (
	"context"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/validation"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// nodeObservation is everything that one reconcile reads of a node: the input of the phase table, and what its actions need in addition.
type nodeObservation struct {
	nodestate.Observation
	// vgpuDevices is the pod of the vGPU device manager.
	vgpuDevices phase.Pod
	// claims is the number of claims that have devices of the node; victims are the pods to evict.
	claims  int
	victims []action.PodRef
}

// observe reads a node completely.
func (r *Reconciler) observe(ctx context.Context, cat *catalog.Catalog, gpunode *v1alpha1.GPUNode) (*nodeObservation, error) {
	base, pods, err := nodestate.Read(ctx, r.Cluster, cat, gpunode)
	if err != nil {
		return nil, err
	}
	o := &nodeObservation{Observation: *base}
	o.Driver = nodestate.OperandPod(pods, o.Assignment.DriverOperand())
	o.Toolkit, o.Operation = nodestate.OperandPod(pods, render.OperandToolkit), nodestate.OperandPod(pods, render.OperandOperation)
	o.vgpuDevices = nodestate.OperandPod(pods, render.OperandVGPUDeviceManager)
	if o.Placed, err = r.placedDriver(ctx, &o.Observation); err != nil {
		return nil, err
	}
	if o.Tainted, err = r.Cluster.NodeGPUsTainted(ctx, gpunode); err != nil {
		return nil, err
	}
	users, err := drain.PoolUsers(ctx, r.Cluster, wire.PoolName(gpunode.Name, o.Assignment.DRADriver))
	if err != nil {
		return nil, err
	}
	o.claims = users.Claims
	// Pods of users are not in the cache. They are read only while the node is being taken out of service.
	if o.Spec.Maintenance != nil || o.Tainted {
		o.Drain, o.victims = r.Drainer.Inspect(ctx, users, o.Assignment.Upgrade.Drain, time.Time{}, o.Now)
	} else {
		o.Drain = users.Holders()
	}
	o.Validation, err = r.readValidation(ctx, o)
	return o, err
}

// barrier identifies what a validation of the node is valid for: boot, driver, agent, and the GPUs that are excluded. A validation with another barrier
// does not count.
func (o *nodeObservation) barrier() string {
	digest := ""
	if o.Spec.Driver != nil {
		digest = o.Spec.Driver.Digest
	}
	barrier := strings.Join([]string{o.Node.BootID, digest, o.Agent.UID}, "/")
	if out := o.excludedGPUs(); len(out) > 0 {
		barrier += "/without/" + strings.Join(out, "/")
	}
	return barrier
}

// readValidation returns how far the validation of the node is. A part whose pod is still to be created continues only if every validation has that part:
// the MIG part may not be required any more, and is left over.
func (r *Reconciler) readValidation(ctx context.Context, o *nodeObservation) (phase.Validation, error) {
	v := phase.Validation{State: phase.ValidationNone}
	var parts []phase.Pod
	for _, part := range action.NodeValidationParts() {
		switch objects, err := validation.ReadObjects(ctx, r.Cluster, o.GPUNode.Name, part); {
		case err != nil:
			return v, err
		case part == action.PartGPUs && objects.AwaitsPod(o.barrier()):
			v.Begun, parts = true, append(parts, objects.PendingPod())
		case objects.Pod != nil && o.partCounts(part, objects):
			parts = append(parts, nodestate.ObserveValidationPod(objects.Pod))
		default:
			v.Leftover = v.Leftover || objects.Exist()
		}
	}
	return validation.Combine(v, parts), nil
}

// partCounts reports whether the pod of a part belongs to the present validation. A MIG part that cannot be scheduled because users took the GPUs does not
// count: the part with all GPUs suffices then.
func (o *nodeObservation) partCounts(part action.ValidationPart, objects validation.Objects) bool {
	seen := nodestate.ObservePod(objects.Pod)
	displaced := part == action.PartMIG && seen.State == phase.PodPending && !objects.Allocated() && o.claims > 0
	return !displaced && seen.State != phase.PodTerminating && seen.Barrier == o.barrier()
}
