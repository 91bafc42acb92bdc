package preemption

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption/victims"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Config is what a Preemptor depends on.
type Config struct {
	// PluginName is the name under which preemptions are counted and reported.
	PluginName string
	Handle     fwk.Handle
	Features   feature.Features
	Index      *index.Index
	Claims     fwk.ResourceClaimTracker
	// Requeuer retries other pods when a nomination ends.
	Requeuer *requeue.Requeuer
	// RequirementsOf returns what the pod of a scheduling cycle requires of a node.
	RequirementsOf func(fwk.CycleState) *requirements.PodRequirements
	// BudgetOf returns the budget of a scheduling cycle for searches.
	BudgetOf func(fwk.CycleState) *fit.Budget
	// NewNodeFilter returns a function that reports whether a node's taints, labels and spec let it run the pod.
	NewNodeFilter func(context.Context, *corev1.Pod) func(*corev1.Node) bool
}

// Preemptor makes room for a pod by evicting pods of lower priority that hold devices. All methods may be called on
// a nil Preemptor, which never evicts. The framework calls them under its own rules for concurrency: one pod at a
// time is preempted for, on many nodes at once.
type Preemptor struct {
	*defaultpreemption.DefaultPreemption
	config      Config
	evaluator   *preemption.Evaluator
	nominations *nominations

	mu sync.Mutex
	// plans are those of the current attempt, by node.
	plans map[string]nodePlan
}

// nodePlan is the result of a successful dry run on a node.
type nodePlan struct {
	dryRun *dryRun
	// released are the claims that end with the victims.
	released sets.Set[types.UID]
	// choice is what the pod gets once they are released.
	choice fit.Choice
}

// The arguments of DefaultPreemption: how many nodes with victims are compared.
const (
	comparedPercentage = 10
	comparedNodes      = 100
)

var _ preemption.Interface = (*Preemptor)(nil)

// New returns a preemptor. It is called before the informers start.
func New(ctx context.Context, c Config) (*Preemptor, error) {
	args := &schedulerconfig.DefaultPreemptionArgs{MinCandidateNodesPercentage: comparedPercentage, MinCandidateNodesAbsolute: comparedNodes}
	d, err := defaultpreemption.New(ctx, args, c.Handle, c.Features)
	if err != nil {
		return nil, fmt.Errorf("create the plugin DefaultPreemption: %w", err)
	}
	pods := c.Handle.SharedInformerFactory().Core().V1().Pods()
	p := &Preemptor{DefaultPreemption: d, config: c, nominations: newNominations(c.Index, pods.Lister(), c.Requeuer)}
	p.evaluator = preemption.NewEvaluator(c.PluginName, c.Handle, p, d.Executor)
	if err := p.nominations.follow(pods.Informer()); err != nil {
		return nil, err
	}
	return p, nil
}

// MayPreempt reports whether the pod may have other pods evicted.
func (p *Preemptor) MayPreempt(pod *corev1.Pod) bool {
	policy := pod.Spec.PreemptionPolicy
	return p != nil && (policy == nil || *policy != corev1.PreemptNever)
}

// IsEvictingFor reports whether pods are being evicted for the pod right now.
func (p *Preemptor) IsEvictingFor(pod *corev1.Pod) bool {
	return p != nil && p.Executor.IsPodRunningPreemption(pod.UID)
}

// EndNomination ends what is kept for the pod. It is called when the pod was reserved a node, whichever it is.
func (p *Preemptor) EndNomination(pod types.UID) {
	if p != nil {
		p.nominations.end(pod)
	}
}

// Preempt evicts pods for the pod, which fits on no node, and keeps the devices that they release for it. It returns
// a final status while earlier victims have not released their devices yet.
func (p *Preemptor) Preempt(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	if p.isWaiting(ctx, cs, pod) {
		// With any other code DefaultPreemption would run next and clear the pod's nomination.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "preemption: waiting until evicted pods release their devices")
	}
	nodes, err := p.candidateNodes(ctx, pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	p.resetPlans()
	result, status := p.evaluator.Preempt(ctx, cs, pod, nodes)
	if status.IsSuccess() && result != nil {
		p.nominate(pod, result.NominatedNodeName)
	}
	if message := status.Message(); message != "" {
		status = fwk.NewStatus(status.Code(), "preemption: "+message)
	}
	return result, status
}

// isWaiting reports whether the pod only has to wait for the devices that are kept for it. If it would not fit even
// with all of them released, because the node has changed, the nomination ends.
func (p *Preemptor) isWaiting(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod) bool {
	nomination, ok := p.nominations.get(pod.UID)
	if !ok {
		return false
	}
	if d, err := p.newReleaseDryRun(cs, pod, nomination); err == nil { //nolint:contextcheck // selectors are evaluated in memory
		if _, fits, err := d.chooseWithout(func(owner) bool { return true }); err == nil && fits {
			if len(d.owners) == 0 {
				// The last victim released its devices during this attempt: no further event will retry the pod.
				p.config.Handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{klog.KObj(pod).String(): pod})
			}
			return true
		}
	}
	p.nominations.end(pod.UID)
	return false
}

// candidateNodes returns the nodes on which devices are held, which may run the pod and which have pods of lower
// priority.
func (p *Preemptor) candidateNodes(ctx context.Context, pod *corev1.Pod) (*framework.NodeToStatus, error) {
	all, err := p.config.Handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	mayRun := p.config.NewNodeFilter(ctx, pod)
	priority := corev1helpers.PodPriority(pod)
	statuses := framework.NewDefaultNodeToStatus()
	for _, info := range all {
		n, ok := p.config.Index.Node(info.Node().Name)
		if ok && len(n.Held) > 0 && mayRun(info.Node()) && slices.ContainsFunc(info.GetPods(), func(other fwk.PodInfo) bool {
			return corev1helpers.PodPriority(other.GetPod()) < priority
		}) {
			statuses.Set(n.Name, fwk.NewStatus(fwk.Unschedulable, intree.ReasonCannotAllocate))
		}
	}
	return statuses, nil
}

// SelectVictimsOnNode returns the pods to evict from the node, and how many of them violate a PodDisruptionBudget.
// The evaluator calls it for many nodes at once, each time with a separate cycle state and node.
func (p *Preemptor) SelectVictimsOnNode(
	ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo,
	possible []*preemption.DomainVictim, pdbs []*policyv1.PodDisruptionBudget,
) ([]*corev1.Pod, int, *fwk.Status) {
	d, err := p.newDryRun(cs, pod, info.Node().Name, lowerPriority(pod, possible), pdbs) //nolint:contextcheck // selectors are evaluated in memory
	if err != nil {
		return nil, 0, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	selected, ok, err := victims.SelectVictims(&d.node.Fit, d.requirements, d.holders, d.budget)
	switch {
	case err != nil:
		return nil, 0, fwk.AsStatus(err)
	case d.budget.Exceeded():
		return nil, 0, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fit.ErrTooComplex.Error())
	case !ok:
		return nil, 0, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, intree.ReasonCannotAllocate)
	}
	// DefaultPreemption removes the possible victims, adds back those that it can spare, and runs the filters. The
	// plugin's Filter finds the dry run in the cycle state (FilterDryRun).
	cs.Write(dryRunKey, d)
	pods, violations, status := p.DefaultPreemption.SelectVictimsOnNode(ctx, cs.Clone(), pod, info.Snapshot(), d.podsOf(selected.Victims, possible), pdbs)
	if !status.IsSuccess() {
		// Devices are not the only shortage: cpu or memory may need further victims.
		pods, violations, status = p.DefaultPreemption.SelectVictimsOnNode(ctx, cs, pod, info, possible, pdbs)
	}
	if status.IsSuccess() {
		if err := p.plan(info.Node().Name, d, pods); err != nil {
			return nil, 0, fwk.AsStatus(err)
		}
	}
	return pods, violations, status
}

// lowerPriority returns the possible victims whose priority is lower than the pod's.
func lowerPriority(pod *corev1.Pod, possible []*preemption.DomainVictim) []*preemption.DomainVictim {
	return slices.DeleteFunc(slices.Clone(possible), func(v *preemption.DomainVictim) bool {
		return v.Priority() >= corev1helpers.PodPriority(pod)
	})
}

// resetPlans drops the plans of the previous attempt.
func (p *Preemptor) resetPlans() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plans = map[string]nodePlan{}
}

// plan records what the pod gets on the node once the pods are evicted.
func (p *Preemptor) plan(node string, d *dryRun, pods []*corev1.Pod) error {
	released := d.claimsReleasedBy(pods)
	choice, fits, err := d.chooseWithout(func(o owner) bool { return released.IsSuperset(o.claims) })
	switch {
	case err != nil:
		return err
	case !fits:
		return fmt.Errorf("plan the eviction from node %s: the victims do not release enough devices", node)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plans[node] = nodePlan{d, released, choice}
	return nil
}

// nominate keeps the devices of the node's plan for the pod.
func (p *Preemptor) nominate(pod *corev1.Pod, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if plan, ok := p.plans[node]; ok {
		p.nominations.add(pod, nomination{node: node, claims: plan.released}, plan.dryRun.allocationOf(pod.UID, plan.choice))
	}
}

// OrderedScoreFuncs compares nodes by their victims as DefaultPreemption does. Nodes that tie are compared by how
// much the chosen devices leave for later pods.
func (p *Preemptor) OrderedScoreFuncs(_ context.Context, byNode map[string]*extenderv1.Victims) []func(node string) int64 {
	return []func(string) int64{
		func(node string) int64 { return -byNode[node].NumPDBViolations },
		func(node string) int64 {
			highest := int64(-1 << 32)
			for _, pod := range byNode[node].Pods {
				highest = max(highest, int64(corev1helpers.PodPriority(pod)))
			}
			return -highest
		},
		func(node string) int64 {
			var sum int64
			for _, pod := range byNode[node].Pods {
				// Shifted above zero, so that more pods of negative priority count as more.
				sum += int64(corev1helpers.PodPriority(pod)) + 1<<32
			}
			return -sum
		},
		func(node string) int64 { return -int64(len(byNode[node].Pods)) },
		func(node string) int64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.plans[node].choice.Score
		},
	}
}
