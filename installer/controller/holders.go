package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// readHolders adds who holds a GPU and how far its proof is. Pods are asked for only when they are to leave, or would be: of the others what claims say
// in the cache is enough.
func (r *nodeReconciler) readHolders(ctx context.Context, cat *Catalog, s *nodeObservation, p *gpuRemediation) error {
	stands, err := r.readProof(ctx, s.GPUNode.Name, action.GPUValidationPart(p.GPU))
	if err != nil {
		return err
	}
	p.Validation, p.Started = stands.of(p.Order)
	users, err := r.gpuUsers(ctx, s, p)
	if err != nil {
		return err
	}
	if p.Order != nil || p.Policy.Mode == v1alpha1.RemediationAct {
		p.Drain, p.victims = r.drainer.look(ctx, users, cat.Policy.Spec.Remediation.Drain)
		return nil
	}
	p.Drain.Unreadable = users.Unreadable
	for _, pod := range users.Pods {
		p.Drain.Holders = append(p.Drain.Holders, pod.String())
	}
	return nil
}

// of says how far a proof is for an order, and whether its pod has begun to run.
func (p ValidationObjects) of(order *v1alpha1.Remedy) (v phase.Validation, started bool) {
	if order != nil && p.AwaitsPod(order.ID) {
		v.Begun = true
		return CombineParts(v, []phase.Pod{p.PendingPod()}), false
	}
	if p.Pod == nil {
		v.Leftover = p.Claim != nil
		return v, false
	}
	seen := ObservePod(p.Pod)
	if order == nil || seen.State == phase.PodTerminating || p.Pod.Annotations[action.AnnotationBarrier] != order.ID {
		v.Leftover = true
		return v, false
	}
	return CombineParts(v, []phase.Pod{seen}), p.Pod.Status.Phase != "" && p.Pod.Status.Phase != corev1.PodPending
}

// gpuUsers finds who holds a GPU, and, where a fault needs a reset, those that are reset along with it, or the devices of it that alone must be
// empty. A device that is not offered any more is nobody's: the agent, who knows it, says how much is prepared. While not everything is published nobody is named, and the claims are unreadable.
func (r *nodeReconciler) gpuUsers(ctx context.Context, s *nodeObservation, p *gpuRemediation) (Users, error) {
	name := wire.PoolName(s.GPUNode.Name, s.Assignment.DRADriver)
	all, err := PoolUsers(ctx, r.Cluster, name)
	if err != nil || all.Claims == 0 {
		return all, err
	}
	if reach := remediation.Reach(p.Faults); len(reach) > 0 {
		return DeviceUsers(ctx, r.Cluster, name, func(device string) bool { return slices.Contains(reach, device) })
	}
	pool, err := r.published(ctx, s, func(pool wire.Reading) bool {
		return !slices.ContainsFunc(all.Devices, func(device string) bool { _, _, err := pool.Find(device); return err != nil })
	})
	if err != nil {
		return Users{}, err
	}
	if !pool.Complete {
		return Users{Unreadable: true}, nil // of nobody it is certain which GPU they have
	}
	group := []string{p.GPU}
	if remediation.Resets(p.Faults) {
		group = resetGroup(pool, p.GPU)
	}
	return DeviceUsers(ctx, r.Cluster, name, func(device string) bool {
		g, _, err := pool.Find(device)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A claim has a device that is not offered any more", "node", s.GPUNode.Name, "device", device)
			return false
		}
		return slices.Contains(group, g.Name)
	})
}

// resetGroup names the GPUs that are reset along with one, as far as is published; that one at least.
func resetGroup(pool wire.Reading, name string) []string {
	var node gpu.Node
	for _, g := range pool.GPUs {
		node.GPUs = append(node.GPUs, g.GPU)
	}
	if group := node.ResetGroup(name); len(group) > 0 {
		return group
	}
	return []string{name}
}

// Pools remembers what agents publish, so that a look at a sick node costs no request. It is safe for concurrent use.
type Pools struct {
	mutex sync.Mutex
	nodes map[string]publication
}

// publication is a pool, and the agent and boot that it is of.
type publication struct {
	agent string
	pool  wire.Reading
}

func NewPools() *Pools { return &Pools{nodes: map[string]publication{}} }

func (p *Pools) of(node string) publication {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.nodes[node]
}

func (p *Pools) set(node string, known publication) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.nodes[node] = known; known.agent == "" {
		delete(p.nodes, node)
	}
}

// published returns the pool of a node: what is remembered of its agent when that has what is asked for, else what the API server has.
func (r *nodeReconciler) published(ctx context.Context, s *nodeObservation, has func(wire.Reading) bool) (wire.Reading, error) {
	name, agent := s.GPUNode.Name, ""
	if said := s.Status.Agent; said != nil {
		agent = said.BootID + "/" + said.PodUID
	}
	if known := r.pools.of(name); known.agent == agent && agent != "" && has(known.pool) {
		return known.pool, nil
	}
	list := &resourceapi.ResourceSliceList{}
	if err := r.Live.List(ctx, list, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: name}); err != nil {
		return wire.Reading{}, fmt.Errorf("list ResourceSlices of node %s: %w", name, err)
	}
	for _, pool := range wire.Read(list.Items) {
		if pool.Driver != s.Assignment.DRADriver || pool.Pool != wire.PoolName(name, pool.Driver) {
			continue
		}
		if pool.Complete {
			r.pools.set(name, publication{agent, pool})
		}
		return pool, nil
	}
	return wire.Reading{}, nil
}
