// Package remediation takes GPUs with severe faults out of service, resets and validates them, and returns them to service. The steps are decided by
// installer/remediation, GPU by GPU; this package observes the GPUs of one node, performs what was decided, and counts the GPUs of the cluster against
// the budget.
package remediation

import (
	"context"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// Config has what a Remediator works with. All fields are required.
type Config struct {
	Cluster   action.Cluster
	Drainer   *drain.Drainer
	Pools     *nodestate.Pools
	Obstacles *report.Obstacles
	Events    report.Recorder
	Metrics   *report.Metrics
	// NodeImage is the image of the node agent in the release.
	NodeImage string
}

// Remediator remediates the GPUs of all nodes. It is safe for concurrent use.
type Remediator struct {
	Config
	// budget is held while GPUs of a node are decided about and their orders are written: otherwise two nodes could take the same place.
	budget sync.Mutex
	// ordered are the orders that the cache may not show yet.
	ordered pendingOrders
}

// New returns a Remediator.
func New(c Config) *Remediator { return &Remediator{Config: c} }

// RemoveNode removes what is kept in memory about a node that is gone.
func (r *Remediator) RemoveNode(node string) {
	r.ordered.remove(node)
	r.Pools.Remove(node)
}

// NodeRemediation has the GPUs of one node that have severe faults or are being remediated, with what was decided about each, during one reconcile.
type NodeRemediation struct {
	*Remediator
	catalog *catalog.Catalog
	node    *nodestate.Observation
	// gpus are sorted by name.
	gpus []gpuRemediation
}

// gpuRemediation is one GPU with what was observed and decided.
type gpuRemediation struct {
	remediation.Observed
	decision remediation.Decision
	// victims are the pods to evict.
	victims []action.PodRef
	// failed is why the GPU could not be observed: nothing is done about it in this reconcile, and everything else is.
	failed error
}

// Decide observes the GPUs of a node and decides about each. d is what was decided about the node itself. Nothing is written.
//
// The caller calls done after it has written the status and called RemediateNodeGPUs: until then no other node takes a place in the budget.
func (r *Remediator) Decide(ctx context.Context, c *catalog.Catalog, node *nodestate.Observation, d phase.Decision) (n *NodeRemediation, done func(), err error) {
	done = func() {}
	if len(faultyGPUs(node)) > 0 {
		r.budget.Lock()
		done = r.budget.Unlock
	}
	r.ordered.remove(node.GPUNode.Name)
	n = &NodeRemediation{Remediator: r, catalog: c, node: node, gpus: listGPUs(c, node, d)}
	if len(n.gpus) == 0 {
		return n, done, nil
	}
	for i := range n.gpus {
		if g := &n.gpus[i]; g.Policy.Mode != v1alpha1.RemediationOff || g.Order != nil {
			g.failed = r.readHolders(ctx, c, node, g)
		}
	}
	granted, err := r.grantPlaces(ctx, n)
	if err != nil {
		return n, done, err
	}
	for i := range n.gpus {
		g := &n.gpus[i]
		g.Granted = granted[remediation.Key{Node: node.GPUNode.Name, GPU: g.GPU}]
		r.decideGPU(node.GPUNode.Name, g)
		klog.FromContext(ctx).V(2).Info("Decided", "node", node.GPUNode.Name, "gpu", g.GPU, "op", g.decision.Action)
	}
	return n, done, nil
}

// decideGPU decides about one GPU. One that could not be observed keeps its status.
func (r *Remediator) decideGPU(node string, g *gpuRemediation) {
	key := report.GPUKey(node, g.GPU)
	if g.Obstacle = r.Obstacles.Of(key).Text; g.Status != nil {
		g.Status.Message = r.Obstacles.Original(key, g.Status.Message)
	}
	if g.decision = remediation.Next(g.Observed); g.failed != nil {
		g.decision = remediation.Decision{Status: g.Status, Action: remediation.Wait}
	}
	// A wait fails only if the GPU cannot be observed.
	if status := g.decision.Status; status != nil && (g.failed != nil || g.decision.Action != remediation.Wait) {
		status.Message = r.Obstacles.Explain(key, string(g.decision.Action), status.Message)
	}
	if c, requests := g.Candidate(node); requests && !c.Begun && g.decision.Action == remediation.Direct {
		r.ordered.add(node, g.GPU)
	}
}

// Statuses returns the new status.remediations of the node.
func (n *NodeRemediation) Statuses() []v1alpha1.RemediationStatus {
	var list []v1alpha1.RemediationStatus
	for _, g := range n.gpus {
		if g.decision.Status != nil {
			list = append(list, *g.decision.Status)
		}
	}
	return list
}

// Conditions returns the conditions of the GPUNode about its GPUs.
func (n *NodeRemediation) Conditions() []phase.Condition {
	return remediation.Conditions(n.node.AgentRuns(), n.node.Faults(), n.Statuses())
}

// faultyGPUs returns the names of the GPUs that have severe faults, are ordered out of service, or have a status of remediation, sorted.
func faultyGPUs(node *nodestate.Observation) []string {
	var names []string
	for _, f := range node.Faults() {
		names = append(names, f.GPU)
	}
	for _, order := range node.Spec.Remediations {
		names = append(names, order.GPU)
	}
	for _, status := range node.Status.Remediations {
		names = append(names, status.GPU)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// listGPUs returns the GPUs of a node to decide about, as far as the node's objects describe them.
func listGPUs(c *catalog.Catalog, node *nodestate.Observation, d phase.Decision) []gpuRemediation {
	var gpus []gpuRemediation
	history := map[string][]v1alpha1.RemediationRecord{}
	for _, record := range node.Status.History {
		history[record.GPU] = append(history[record.GPU], record)
	}
	for _, name := range faultyGPUs(node) {
		o := remediation.Observed{
			Now: node.Now, GPU: name, Policy: policyFor(c, node), BootID: node.Node.BootID, AgentReports: node.AgentRuns(), History: history[name],
			Paused: pausedBy(c, node.GPUNode), Busy: busyReason(node, d), Monitored: node.Monitored,
		}
		o.Faults = slices.DeleteFunc(node.Faults(), func(f v1alpha1.GPUFault) bool { return f.GPU != name })
		o.Order = findCopy(node.Spec.Remediations, func(order v1alpha1.Remediation) bool { return order.GPU == name })
		o.Status = findCopy(node.Status.Remediations, func(status v1alpha1.RemediationStatus) bool { return status.GPU == name })
		if o.Order != nil && node.Status.Agent != nil {
			o.Agent = findCopy(node.Status.Agent.Remediations, func(answer v1alpha1.AgentRemediation) bool { return answer.ID == o.Order.ID })
		}
		gpus = append(gpus, gpuRemediation{Observed: o})
	}
	return gpus
}

// findCopy returns a copy of the first element that is reports, or nil.
func findCopy[T any](list []T, is func(T) bool) *T {
	if at := slices.IndexFunc(list, is); at >= 0 {
		return new(list[at])
	}
	return nil
}
