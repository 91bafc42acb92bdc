package plugin

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
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption/victims"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// preemptor has pods of lower priority give way for the devices that they hold. Who may be evicted, how
// that is done and what is told about it is kube-scheduler's default preemption, which by itself never
// evicts for devices; who of them gives way is ours to choose (victims.Victims).
type preemptor struct {
	*defaultpreemption.DefaultPreemption
	plugin    *Plugin
	evaluator *preemption.Evaluator
	promises  *promises

	mu sync.Mutex
	// plans are those of the current attempt, by node. One pod at a time is attempted.
	plans map[string]plan
}

// The default preemption's own arguments: how many nodes with victims are compared.
const (
	comparedPercentage = 10
	comparedNodes      = 100
)

func newPreemptor(ctx context.Context, p *Plugin) (*preemptor, error) {
	args := &schedulerconfig.DefaultPreemptionArgs{MinCandidateNodesPercentage: comparedPercentage, MinCandidateNodesAbsolute: comparedNodes}
	d, err := defaultpreemption.New(ctx, args, p.handle, p.features)
	if err != nil {
		return nil, fmt.Errorf("make the default preemption: %w", err)
	}
	pods := p.handle.SharedInformerFactory().Core().V1().Pods().Lister()
	pr := &preemptor{DefaultPreemption: d, plugin: p, promises: newPromises(p.shared.index, pods, p.shared.newRequeuer(requeue.NoVersion, p.handle))}
	pr.evaluator = preemption.NewEvaluator(Name, p.handle, pr, d.Executor)
	if err := pr.promises.follow(p.handle); err != nil {
		return nil, err
	}
	return pr, nil
}

// may reports whether the pod may have others evicted, and whether fit can say who.
func (p *preemptor) may(c *cycle) bool {
	policy := c.pod.Spec.PreemptionPolicy
	return p != nil && c.order != nil && (policy == nil || *policy != corev1.PreemptNever)
}

// preempt evicts for the pod, which fits nowhere, and keeps what the victims release for it.
func (p *preemptor) preempt(ctx context.Context, cs fwk.CycleState, c *cycle) (*fwk.PostFilterResult, *fwk.Status) {
	if p.waits(ctx, c) {
		// Final, so that the default preemption does not take the pod's nomination away.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "preemption: waiting for the devices of evicted pods")
	}
	nodes, err := p.candidates(ctx, c)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	p.forget()
	result, status := p.evaluator.Preempt(ctx, cs, c.pod, nodes)
	if status.IsSuccess() && result != nil {
		p.promise(c.pod, result.NominatedNodeName)
	}
	if message := status.Message(); message != "" {
		status = fwk.NewStatus(status.Code(), "preemption: "+message)
	}
	return result, status
}

// forget drops the plans of the attempt before.
func (p *preemptor) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plans = map[string]plan{}
}

// reserved ends what was promised to the pod: it has got it, or something else.
func (p *preemptor) reserved(pod types.UID) {
	if p != nil {
		p.promises.end(pod)
	}
}

// candidates are the nodes with devices of ours that are open to the pod and have pods of lower priority.
func (p *preemptor) candidates(ctx context.Context, c *cycle) (*framework.NodeToStatus, error) {
	all, err := p.plugin.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	check := p.plugin.newNodeCheck(ctx, c.pod)
	priority := corev1helpers.PodPriority(c.pod)
	statuses := framework.NewDefaultNodeToStatus()
	for _, info := range all {
		n, ok := p.plugin.shared.index.Node(info.Node().Name)
		if ok && len(n.Held) > 0 && check.isOpen(info.Node()) && slices.ContainsFunc(info.GetPods(), func(of fwk.PodInfo) bool {
			return corev1helpers.PodPriority(of.GetPod()) < priority
		}) {
			statuses.Set(n.Name, fwk.NewStatus(fwk.Unschedulable, noDevices))
		}
	}
	return statuses, nil
}

// SelectVictimsOnNode returns whom of the possible victims the pod needs to be gone. It is called for
// many nodes at once, each time with a state and a node of its own.
func (p *preemptor) SelectVictimsOnNode(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo, possible []*preemption.DomainVictim, pdbs []*policyv1.PodDisruptionBudget) ([]*corev1.Pod, int, *fwk.Status) {
	c := current(cs)
	e, err := p.plugin.newEviction(c, info.Node().Name, p.lesser(pod, possible), pdbs) //nolint:contextcheck // selectors are evaluated in memory
	if err != nil {
		return nil, 0, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	answer, ok, err := victims.Victims(&e.node.Fit, e.asked, e.holders)
	switch {
	case err != nil:
		return nil, 0, fwk.AsStatus(err)
	case !ok:
		return nil, 0, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, noDevices)
	}
	cs.Write(evictionKey, e)
	victims, violations, status := p.DefaultPreemption.SelectVictimsOnNode(ctx, cs.Clone(), pod, info.Snapshot(), e.victims(answer.Victims, possible), pdbs)
	if !status.IsSuccess() {
		// Devices are not all that is missing.
		victims, violations, status = p.DefaultPreemption.SelectVictimsOnNode(ctx, cs, pod, info, possible, pdbs)
	}
	if status.IsSuccess() {
		if err := p.plan(info.Node().Name, e, victims); err != nil {
			return nil, 0, fwk.AsStatus(err)
		}
	}
	return victims, violations, status
}

// plan is what comes of the victims' end on a node.
type plan struct {
	eviction *eviction
	released sets.Set[types.UID]
	choice   fit.Choice
}

// plan remembers what the pod gets on the node when the victims are gone.
func (p *preemptor) plan(node string, e *eviction, victims []*corev1.Pod) error {
	released := e.released(victims)
	choice, fits, err := e.choose(func(o owner) bool { return !released.IsSuperset(o.claims) })
	switch {
	case err != nil:
		return err
	case !fits:
		return fmt.Errorf("plan the eviction from %s: the devices are not released by the victims alone", node)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plans[node] = plan{e, released, choice}
	return nil
}

// promise keeps the devices of the plan for the pod.
func (p *preemptor) promise(pod *corev1.Pod, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if chosen, ok := p.plans[node]; ok {
		p.promises.keep(pod, promise{node: node, claims: chosen.released}, chosen.eviction.results(pod.UID, chosen.choice))
	}
}

// waits reports whether the pod has nothing to do but wait for what was promised to it. If it would not
// fit even without those of the victims who are still there, the promise is worth nothing and ends.
func (p *preemptor) waits(ctx context.Context, c *cycle) bool {
	to, ok := p.promises.get(c.pod.UID)
	if !ok {
		return false
	}
	if e, err := p.plugin.newRelease(c, to); err == nil { //nolint:contextcheck // as above
		if _, fits, err := e.choose(func(owner) bool { return false }); err == nil && fits {
			if len(e.owners) == 0 {
				p.plugin.again(ctx, c.pod) // the last of them went during this attempt
			}
			return true
		}
	}
	p.promises.end(c.pod.UID)
	return false
}

// lesser returns the victims of lower priority than the pod.
func (p *preemptor) lesser(pod *corev1.Pod, possible []*preemption.DomainVictim) []*preemption.DomainVictim {
	return slices.DeleteFunc(slices.Clone(possible), func(v *preemption.DomainVictim) bool {
		return v.Priority() >= corev1helpers.PodPriority(pod)
	})
}

// OrderedScoreFuncs compares nodes by whom they would lose, as the default preemption does, and those that
// tie by what the pods to come would lose.
func (p *preemptor) OrderedScoreFuncs(_ context.Context, victims map[string]*extenderv1.Victims) []func(node string) int64 {
	sum := func(node string) int64 {
		var sum int64
		for _, pod := range victims[node].Pods {
			// Above zero, so that more pods of negative priority count more.
			sum += int64(corev1helpers.PodPriority(pod)) + 1<<32
		}
		return -sum
	}
	return []func(string) int64{
		func(node string) int64 { return -victims[node].NumPDBViolations },
		func(node string) int64 {
			highest := int64(-1 << 32)
			for _, pod := range victims[node].Pods {
				highest = max(highest, int64(corev1helpers.PodPriority(pod)))
			}
			return -highest
		},
		sum,
		func(node string) int64 { return -int64(len(victims[node].Pods)) },
		func(node string) int64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.plans[node].choice.Score
		},
	}
}

var _ preemption.Interface = (*preemptor)(nil)
