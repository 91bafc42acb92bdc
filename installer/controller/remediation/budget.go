package remediation

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// grantPlaces returns the GPUs of the cluster that may be out of service, counting all GPUNodes in the cache. In a mode that takes no GPU out of service
// there are none.
func (r *Remediator) grantPlaces(ctx context.Context, n *NodeRemediation) (map[remediation.Key]bool, error) {
	spec := n.catalog.Policy.Spec.Remediation
	if spec.Mode != v1alpha1.RemediationAct {
		return map[remediation.Key]bool{}, nil
	}
	all := candidates(n.node.GPUNode.Name, n.gpus)
	list := &v1alpha1.GPUNodeList{}
	if err := r.Cluster.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list GPUNodes: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == n.node.GPUNode.Name {
			continue
		}
		// A GPU that both the memory and the cache have is the same candidate: places are granted by name.
		all = append(all, r.ordered.candidates(other.Name)...)
		all = append(all, r.nodeCandidates(ctx, n.catalog, other)...)
	}
	return remediation.Grant(all, int(*spec.MaxParallel)), nil
}

// nodeCandidates returns the candidates of another node. If the node cannot be read, only its GPUs that are out of service count.
func (r *Remediator) nodeCandidates(ctx context.Context, c *catalog.Catalog, gpunode *v1alpha1.GPUNode) []remediation.Candidate {
	if len(gpunode.Spec.Remediations) == 0 && len(gpunode.Status.Remediations) == 0 && (gpunode.Status.Agent == nil || len(gpunode.Status.Agent.Faults) == 0) {
		return nil
	}
	node, _, err := nodestate.Read(ctx, r.Cluster, c, gpunode)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the node; only its GPUs that are out of service count toward the remediation budget", "node", gpunode.Name)
		return heldCandidates(gpunode)
	}
	gpus := listGPUs(c, node, phase.Decision{Phase: gpunode.Status.Phase, Reason: gpunode.Status.Reason})
	for i := range gpus {
		// Whether a GPU that has not begun requests a place depends on its holders: it may wait for them.
		if gpus[i].Order == nil {
			gpus[i].failed = r.readHolders(ctx, c, node, &gpus[i])
		}
	}
	return candidates(gpunode.Name, gpus)
}

// candidates returns the GPUs of a node that have a place in the budget or request one. A GPU that could not be observed requests none.
func candidates(node string, gpus []gpuRemediation) []remediation.Candidate {
	var all []remediation.Candidate
	for _, g := range gpus {
		if c, requests := g.Candidate(node); requests && (c.Begun || g.failed == nil) {
			all = append(all, c)
		}
	}
	return all
}

// heldCandidates returns the GPUs of a node that have a place, according to its GPUNode alone. Those that wait for a reboot or a replacement have none.
func heldCandidates(node *v1alpha1.GPUNode) []remediation.Candidate {
	var all []remediation.Candidate
	for _, order := range node.Spec.Remediations {
		if !slices.ContainsFunc(node.Status.Remediations, func(s v1alpha1.RemediationStatus) bool { return s.GPU == order.GPU && s.BootID != "" }) {
			all = append(all, remediation.Candidate{Key: remediation.Key{Node: node.Name, GPU: order.GPU}, Begun: true})
		}
	}
	return all
}

// WaitsForBudget reports whether a GPU of the node waits for a place in the budget.
func WaitsForBudget(node *v1alpha1.GPUNode) bool {
	return slices.ContainsFunc(node.Status.Remediations, func(s v1alpha1.RemediationStatus) bool { return s.Reason == remediation.ReasonBudgetExhausted })
}

// BudgetChanged passes changes of GPUNodes that may free a place in the budget: updates of remedies, and deletions.
func BudgetChanged() predicate.Predicate {
	p := trigger.UpdatesWhere(func(old, now client.Object) bool {
		a, ok := old.(*v1alpha1.GPUNode)
		b, is := now.(*v1alpha1.GPUNode)
		return ok && is && (!equality.Semantic.DeepEqual(a.Spec.Remediations, b.Spec.Remediations) || !equality.Semantic.DeepEqual(a.Status.Remediations, b.Status.Remediations))
	})
	return predicate.Funcs{UpdateFunc: p.Update, CreateFunc: func(event.CreateEvent) bool { return false }}
}

// pendingOrders are the GPUs for which an order was decided and that the cache may not show yet. The write may also have reached the API server although
// its answer was an error. A GPU is kept until its node is reconciled again. It is safe for concurrent use.
type pendingOrders struct {
	mutex sync.Mutex
	nodes map[string][]string
}

func (p *pendingOrders) add(node, gpu string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.nodes == nil {
		p.nodes = map[string][]string{}
	}
	p.nodes[node] = append(p.nodes[node], gpu)
}

func (p *pendingOrders) remove(node string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.nodes, node)
}

// candidates returns the GPUs of a node as candidates that have a place.
func (p *pendingOrders) candidates(node string) []remediation.Candidate {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var all []remediation.Candidate
	for _, name := range p.nodes[node] {
		all = append(all, remediation.Candidate{Key: remediation.Key{Node: node, GPU: name}, Begun: true})
	}
	return all
}
