package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// pendingOrders are the GPUs that this installer has begun to take out and that the cache may not show yet: a write may lie in the API server of which neither the
// cache nor an answer has told. Each is kept until its node is looked at again. It is safe for concurrent use.
type pendingOrders struct {
	mutex sync.Mutex
	nodes map[string][]string
}

func (t *pendingOrders) add(node, gpu string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.nodes == nil {
		t.nodes = map[string][]string{}
	}
	t.nodes[node] = append(t.nodes[node], gpu)
}

func (t *pendingOrders) forget(node string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.nodes, node)
}

// of are the noted GPUs of a node. One of which the cache tells, too, is the same candidate.
func (t *pendingOrders) of(node string) []remediation.Candidate {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	var all []remediation.Candidate
	for _, name := range t.nodes[node] {
		all = append(all, remediation.Candidate{Key: remediation.Key{Node: node, GPU: name}, Begun: true})
	}
	return all
}

// heldCandidates are the GPUs of a node that are out of service, as far as its GPUNode alone tells: those that wait for a reboot or a person have no place.
func heldCandidates(node *v1alpha1.GPUNode) []remediation.Candidate {
	var all []remediation.Candidate
	for _, order := range node.Spec.Remedies {
		if !slices.ContainsFunc(node.Status.Remedies, func(s v1alpha1.RemedyStatus) bool { return s.GPU == order.GPU && s.BootID != "" }) {
			all = append(all, remediation.Candidate{Key: remediation.Key{Node: node.Name, GPU: order.GPU}, Begun: true})
		}
	}
	return all
}

// grantPlaces says which GPUs of the cluster may be out of service, from all GPUNodes in the cache.
func (r *nodeReconciler) grantPlaces(ctx context.Context, cat *Catalog, s *nodeObservation) (map[remediation.Key]bool, error) {
	if cat.Policy.Spec.Remediation.Mode != v1alpha1.RemediationAct {
		return nil, nil //nolint:nilnil // nobody is taken out
	}
	candidates := s.candidates()
	list := &v1alpha1.GPUNodeList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list GPUNodes: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == s.GPUNode.Name {
			continue
		}
		candidates = append(candidates, r.taken.of(other.Name)...)
		if len(other.Spec.Remedies) == 0 && len(other.Status.Remedies) == 0 && (other.Status.Agent == nil || len(other.Status.Agent.Faults) == 0) {
			continue
		}
		seen, err := r.readCandidates(ctx, cat, other)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Of a node only the GPUs that are out of service count for the budget", "node", other.Name)
			candidates = append(candidates, heldCandidates(other)...)
			continue
		}
		candidates = append(candidates, seen.candidates()...)
	}
	return remediation.Grant(candidates, int(*cat.Policy.Spec.Remediation.MaxParallel)), nil
}

// candidates are the GPUs of a node that ask for a place in the budget, or have one.
func (s *nodeObservation) candidates() []remediation.Candidate {
	var all []remediation.Candidate
	for _, p := range s.patients {
		if c, asks := p.Candidate(s.GPUNode.Name); asks && (c.Begun || p.failed == nil) {
			all = append(all, c)
		}
	}
	return all
}

// readCandidates looks at another node with sick GPUs, as far as the budget must know.
func (r *nodeReconciler) readCandidates(ctx context.Context, cat *Catalog, gpunode *v1alpha1.GPUNode) (*nodeObservation, error) {
	s, _, err := r.begin(ctx, cat, gpunode)
	if err != nil {
		return nil, err
	}
	s.patients = s.look(cat, phase.Decision{Phase: gpunode.Status.Phase, Reason: gpunode.Status.Reason})
	for i := range s.patients {
		// Of those that have not begun it counts whom they wait for.
		if s.patients[i].Order == nil {
			s.patients[i].failed = r.readHolders(ctx, cat, s, &s.patients[i])
		}
	}
	return s, nil
}
