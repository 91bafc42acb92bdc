package remediation

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/validation"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// readHolders adds to a GPU how far its validation is and which pods hold it. Pods are read from the API server only if they are or could be evicted;
// otherwise the reservations in the cache suffice.
func (r *Remediator) readHolders(ctx context.Context, c *catalog.Catalog, node *nodestate.Observation, g *gpuRemediation) error {
	objects, err := validation.ReadObjects(ctx, r.Cluster, node.GPUNode.Name, action.GPUValidationPart(g.GPU))
	if err != nil {
		return err
	}
	g.Validation, g.Started = gpuValidation(objects, g.Order)
	users, err := r.gpuUsers(ctx, node, g)
	if err != nil {
		return err
	}
	if g.Order != nil || g.Policy.Mode == v1alpha1.RemediationAct {
		g.Drain, g.victims = r.Drainer.Inspect(ctx, users, c.Policy.Spec.Remediation.Drain, drainBegan(g.Status), g.Now)
	} else {
		g.Drain = users.Holders()
	}
	return nil
}

// drainBegan returns when the drain of a GPU began, or the zero time.
func drainBegan(status *v1alpha1.RemediationStatus) time.Time {
	if status == nil || status.Step != v1alpha1.RemediationStepDrain {
		return time.Time{}
	}
	return status.Since.Time
}

// gpuValidation returns how far the validation of an order is, and whether its pod has started. Objects of another order are left over.
func gpuValidation(objects validation.Objects, order *v1alpha1.Remediation) (v phase.Validation, started bool) {
	if order != nil && objects.AwaitsPod(order.ID) {
		v.Begun = true
		return validation.Combine(v, []phase.Pod{objects.PendingPod()}), false
	}
	if objects.Pod == nil {
		v.Leftover = objects.Claim != nil
		return v, false
	}
	seen := nodestate.ObserveValidationPod(objects.Pod)
	if order == nil || seen.State == phase.PodTerminating || objects.Pod.Annotations[action.AnnotationBarrier] != order.ID {
		v.Leftover = true
		return v, false
	}
	return validation.Combine(v, []phase.Pod{seen}), objects.Pod.Status.Phase != "" && objects.Pod.Status.Phase != corev1.PodPending
}

// gpuUsers returns the users of a GPU. For a fault that needs a reset these include the users of the GPUs that are reset with it; for a fault of single
// MIG devices only those of the devices.
//
// Which GPU a device belongs to is read from the node's ResourceSlices. A device that is not published any more belongs to none of them: the agent
// reports how many claims are still prepared. While not all ResourceSlices are published, no user is returned, and the claims count as unreadable.
func (r *Remediator) gpuUsers(ctx context.Context, node *nodestate.Observation, g *gpuRemediation) (drain.Users, error) {
	name := wire.PoolName(node.GPUNode.Name, node.Assignment.DRADriver)
	all, err := drain.DeviceUsers(ctx, r.Cluster, name, func(string) bool { return true })
	if err != nil || all.Claims == 0 {
		return all, err
	}
	if reach := remediation.Reach(g.Faults); len(reach) > 0 {
		return drain.DeviceUsers(ctx, r.Cluster, name, func(device string) bool { return slices.Contains(reach, device) })
	}
	pool, err := r.Pools.Published(ctx, node, func(pool wire.Reading) bool {
		return !slices.ContainsFunc(all.Devices, func(device string) bool { _, _, err := pool.Find(device); return err != nil })
	})
	if err != nil {
		return drain.Users{}, err
	}
	if !pool.Complete {
		return drain.Users{Unreadable: true}, nil
	}
	group := []string{g.GPU}
	if remediation.Resets(g.Faults) {
		group = resetGroup(pool, g.GPU)
	}
	return drain.DeviceUsers(ctx, r.Cluster, name, func(device string) bool {
		found, _, err := pool.Find(device)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A claim holds a device that is no longer published", "node", node.GPUNode.Name, "device", device)
			return false
		}
		return slices.Contains(group, found.Name)
	})
}

// resetGroup returns the GPUs that are reset together with one, including it, as far as they are published.
func resetGroup(pool wire.Reading, name string) []string {
	var node gpu.Node
	for _, published := range pool.GPUs {
		node.GPUs = append(node.GPUs, published.GPU)
	}
	return node.ResetGroup(name)
}
