package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/installer/rollout"
)

// longestList is how many names a status carries.
const longestList = 64

// summarize writes the statuses of ClusterPolicy and NVIDIADrivers where they differ.
func (r *policyReconciler) summarize(ctx context.Context, p *pass, decisions map[string]rollout.Decision) error {
	failed := r.summarizePolicy(ctx, p, decisions[policyOwner])
	for i := range p.drivers {
		failed = errors.Join(failed, r.summarizeDriver(ctx, p, &p.drivers[i], decisions[p.drivers[i].Name]))
	}
	return failed
}

// standing is where a group of nodes stands.
type standing struct {
	counts v1alpha1.NodeCounts
	// outdated is how many do not have what they are to have, stuck names those that are Blocked, Failed or RolledBack, with the reason.
	outdated int
	stuck    []string
}

// stand counts the nodes that belong to the group.
func (p *pass) stand(belongs func(member) bool) standing {
	var s standing
	for _, m := range p.members {
		if !belongs(m) {
			continue
		}
		status := m.gpunode.Status
		s.counts.Total++
		// What has been granted and not been looked at yet is not in force either.
		if _, changes := m.change(); changes || status.ObservedGeneration != m.gpunode.Generation {
			s.outdated++
		}
		switch status.Phase {
		case v1alpha1.PhaseReady:
			s.counts.Ready++
		case v1alpha1.PhaseUpgrading:
			s.counts.Upgrading++
		case v1alpha1.PhaseBlocked:
			s.counts.Blocked++
			s.stuck = append(s.stuck, m.node.Name+" is Blocked ("+status.Reason+")")
		case v1alpha1.PhaseFailed, v1alpha1.PhaseRolledBack:
			s.counts.Failed++
			s.stuck = append(s.stuck, m.node.Name+" is "+string(status.Phase)+" ("+status.Reason+")")
		case v1alpha1.PhaseAbsent, v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady,
			v1alpha1.PhaseToolkitReady, v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating:
		}
	}
	return s
}

// sick counts the GPUs of the cluster that are not well, or are being brought back.
func (p *pass) sick() v1alpha1.GPUCounts {
	var counts v1alpha1.GPUCounts
	for _, m := range p.members {
		if !m.assignment.managed() {
			continue
		}
		counts.Held += int32(len(m.gpunode.Spec.Remedies)) //nolint:gosec // a node has 16 GPUs at most
		fatal := map[string]bool{}
		for _, f := range grave(m.gpunode.Status.Agent, m.node.Status.NodeInfo.BootID) {
			fatal[f.GPU] = fatal[f.GPU] || f.Severity == "Fatal"
		}
		for _, is := range fatal {
			if counts.Sick++; is {
				counts.Fatal++
			}
		}
	}
	return counts
}

func (r *policyReconciler) summarizePolicy(ctx context.Context, p *pass, d rollout.Decision) error {
	standing := p.stand(func(m member) bool { return m.assignment.managed() })
	status := v1alpha1.ClusterPolicyStatus{
		ObservedGeneration: p.policy.Generation, Nodes: standing.counts, GPUs: p.sick(), Rollout: d.Status, Conditions: slices.Clone(p.policy.Status.Conditions),
	}
	if d.Plan.Nodes > 0 {
		status.Plan = &d.Plan
	}
	operands, err := r.waiting(ctx, p)
	if err != nil {
		return err
	}
	v := verdictOf(standing, d.Status, operands, p.faults)
	v.write(&status.Conditions, p.policy.Generation, p)
	if equality.Semantic.DeepEqual(p.policy.Status, status) {
		return nil
	}
	r.announce(p.policy, p.policy.Status.Conditions, status.Conditions)
	return r.WritePolicyStatus(ctx, p.policy.DeepCopy(), status)
}

func (r *policyReconciler) summarizeDriver(ctx context.Context, p *pass, driver *v1alpha1.NVIDIADriver, d rollout.Decision) error {
	standing := p.stand(func(m member) bool {
		return m.assignment.managed() && m.assignment.owner == driver.Name && m.assignment.conflict == ""
	})
	status := v1alpha1.NVIDIADriverStatus{
		ObservedGeneration: driver.Generation, Nodes: standing.counts, Rollout: d.Status, Conditions: slices.Clone(driver.Status.Conditions),
	}
	if d.Plan.Nodes > 0 {
		status.Plan = &d.Plan
	}
	var faults []fault
	status.Conflicts, faults = p.quarrels(driver.Name)
	v := verdictOf(standing, d.Status, "", faults)
	v.write(&status.Conditions, driver.Generation, p)
	if equality.Semantic.DeepEqual(driver.Status, status) {
		return nil
	}
	r.announce(driver, driver.Status.Conditions, status.Conditions)
	return r.WritePolicyStatus(ctx, driver.DeepCopy(), status)
}

// quarrels are the first nodes that an NVIDIADriver and another one choose, and all that keeps its driver from its nodes.
func (p *pass) quarrels(name string) (nodes []string, faults []fault) {
	for _, m := range p.members {
		if !m.assignment.managed() || !slices.Contains(m.assignment.drivers, name) {
			continue
		}
		if len(nodes) == 0 {
			faults = append(faults, fault{"Conflict", "node " + m.node.Name + ": " + m.assignment.conflict})
		}
		if len(nodes) < longestList {
			nodes = append(nodes, m.node.Name)
		}
	}
	for key, found := range p.known {
		if key.owner == name && found.err != nil {
			faults = append(faults, fault{"DriverUnknown", found.err.Error()})
		}
	}
	slices.SortFunc(faults, func(a, b fault) int { return strings.Compare(a.message, b.message) })
	return nodes, faults
}

// waiting says which operand of the cluster is not available yet; empty: none. Operands on nodes are seen in the phases of their nodes, but for
// the discovery: until it has looked everywhere, nobody knows how many there are.
func (r *policyReconciler) waiting(ctx context.Context, p *pass) (string, error) {
	for _, object := range p.objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			live := &appsv1.Deployment{}
			if err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
				return "Deployment " + o.Name + " is not there yet", client.IgnoreNotFound(err)
			}
			if live.Status.ObservedGeneration < live.Generation || live.Status.AvailableReplicas == 0 {
				return fmt.Sprintf("Deployment %s has no available pod: see its pods", o.Name), nil
			}
		case *appsv1.DaemonSet:
			if o.Name != render.OperandDiscovery {
				continue
			}
			if waits, err := r.discovers(ctx, p, o); waits != "" || err != nil {
				return waits, err
			}
		}
	}
	return "", nil
}

// announce tells of conditions that changed in events.
func (r *policyReconciler) announce(object client.Object, old, now []metav1.Condition) {
	for _, c := range now {
		before := meta.FindStatusCondition(old, c.Type)
		if before != nil && before.Status == c.Status && before.Reason == c.Reason {
			continue
		}
		kind := corev1.EventTypeNormal
		if c.Status == metav1.ConditionTrue && (c.Type == v1alpha1.ConditionDegraded || c.Type == v1alpha1.ConditionRolloutPaused) {
			kind = corev1.EventTypeWarning
		}
		text := c.Message
		if text == "" {
			text = c.Reason
		}
		r.recorder.Eventf(object, nil, kind, c.Type+string(c.Status), "Judge", "%s", note(text))
	}
}
