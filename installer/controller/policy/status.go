package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/installer/rollout"
)

// maxListedNodes is how many names of nodes a status has.
const maxListedNodes = 64

// updatePolicyStatuses writes the statuses of ClusterPolicy and NVIDIADrivers that differ.
func (r *Reconciler) updatePolicyStatuses(ctx context.Context, p *pass, decisions map[string]rollout.Decision) error {
	failed := r.updateClusterPolicyStatus(ctx, p, decisions[catalog.PolicyOwner])
	for i := range p.Drivers {
		failed = errors.Join(failed, r.updateNVIDIADriverStatus(ctx, p, &p.Drivers[i], decisions[p.Drivers[i].Name]))
	}
	return failed
}

// nodeSummary has the counts of a group of nodes.
type nodeSummary struct {
	counts v1alpha1.NodeCounts
	// outdated is the number of nodes that do not have what policies want. stuck has those that are Blocked, Failed or RolledBack, with the reason.
	outdated int
	stuck    []string
}

// summarizeNodes counts the nodes that belong to the group.
func (p *pass) summarizeNodes(belongs func(member) bool) nodeSummary {
	var s nodeSummary
	for _, m := range p.members {
		if !belongs(m) {
			continue
		}
		status := m.gpunode.Status
		s.counts.Total++
		// What has been granted is not in force before the node was reconciled.
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

// countFaultyGPUs counts the GPUs of managed nodes that have severe faults or are held for a remediation.
func (p *pass) countFaultyGPUs() v1alpha1.GPUCounts {
	var counts v1alpha1.GPUCounts
	for _, m := range p.members {
		if !m.assignment.Managed() {
			continue
		}
		counts.Held += int32(len(m.gpunode.Spec.Remediations)) //nolint:gosec // a node has 16 GPUs at most
		fatal := map[string]bool{}
		for _, f := range nodestate.SevereFaults(m.gpunode.Status.Agent, m.node.Status.NodeInfo.BootID) {
			fatal[f.GPU] = fatal[f.GPU] || f.Severity == gpu.Fatal.String()
		}
		for _, is := range fatal {
			if counts.Unhealthy++; is {
				counts.Fatal++
			}
		}
	}
	return counts
}

func (r *Reconciler) updateClusterPolicyStatus(ctx context.Context, p *pass, d rollout.Decision) error {
	nodes := p.summarizeNodes(func(m member) bool { return m.assignment.Managed() })
	status := v1alpha1.ClusterPolicyStatus{
		ObservedGeneration: p.Policy.Generation, Nodes: nodes.counts, GPUs: p.countFaultyGPUs(), Rollout: d.Status,
		Conditions: slices.Clone(p.Policy.Status.Conditions),
	}
	if d.Plan.Nodes > 0 {
		status.Plan = &d.Plan
	}
	operands, err := r.unavailableOperand(ctx, p)
	if err != nil {
		return err
	}
	v := derivePolicyConditions(nodes, d.Status, operands, p.faults)
	v.write(&status.Conditions, p.Policy.Generation, p)
	r.writeReduced(&status.Conditions, p)
	if equality.Semantic.DeepEqual(p.Policy.Status, status) {
		return nil
	}
	r.recordConditionEvents(p.Policy, p.Policy.Status.Conditions, status.Conditions)
	return r.Cluster.WritePolicyStatus(ctx, p.Policy.DeepCopy(), status)
}

func (r *Reconciler) updateNVIDIADriverStatus(ctx context.Context, p *pass, driver *v1alpha1.NVIDIADriver, d rollout.Decision) error {
	nodes := p.summarizeNodes(func(m member) bool {
		return m.assignment.Managed() && m.assignment.Owner == driver.Name && m.assignment.Conflict == ""
	})
	status := v1alpha1.NVIDIADriverStatus{
		ObservedGeneration: driver.Generation, Nodes: nodes.counts, Rollout: d.Status,
		Conditions: slices.Clone(driver.Status.Conditions),
	}
	if d.Plan.Nodes > 0 {
		status.Plan = &d.Plan
	}
	var faults []fault
	status.Conflicts, faults = p.selectorConflicts(driver.Name)
	v := derivePolicyConditions(nodes, d.Status, "", faults)
	v.write(&status.Conditions, driver.Generation, p)
	if equality.Semantic.DeepEqual(driver.Status, status) {
		return nil
	}
	r.recordConditionEvents(driver, driver.Status.Conditions, status.Conditions)
	return r.Cluster.WritePolicyStatus(ctx, driver.DeepCopy(), status)
}

// selectorConflicts returns the first nodes that an NVIDIADriver and another one both select, and everything that prevents its driver on its nodes.
func (p *pass) selectorConflicts(name string) (nodes []string, faults []fault) {
	for _, m := range p.members {
		if !m.assignment.Managed() || !slices.Contains(m.assignment.ConflictingDrivers, name) {
			continue
		}
		if len(nodes) == 0 {
			faults = append(faults, fault{"Conflict", "node " + m.node.Name + ": " + m.assignment.Conflict})
		}
		if len(nodes) < maxListedNodes {
			nodes = append(nodes, m.node.Name)
		}
	}
	for key, found := range p.drivers {
		if key.Owner == name && found.Err != nil {
			faults = append(faults, fault{"DriverUnknown", found.Err.Error()})
		}
	}
	slices.SortFunc(faults, func(a, b fault) int { return strings.Compare(a.message, b.message) })
	return nodes, faults
}

// unavailableOperand returns the first operand of the cluster that is not available, for messages, or an empty text. Operands on nodes show in the phases of
// their nodes, except discovery: before it has run everywhere, the number of GPU nodes is unknown.
func (r *Reconciler) unavailableOperand(ctx context.Context, p *pass) (string, error) {
	for _, object := range p.objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			live := &appsv1.Deployment{}
			if missing, err := r.readOperand(ctx, "Deployment", o, live); missing != "" || err != nil {
				return missing, err
			}
			if !p.available(live) {
				return fmt.Sprintf("Deployment %s has no available pod; check its pods", o.Name), nil
			}
		case *appsv1.DaemonSet:
			if o.Name != render.OperandDiscovery {
				continue
			}
			if waits, err := r.pendingDiscovery(ctx, p, o); waits != "" || err != nil {
				return waits, err
			}
		}
	}
	return "", nil
}

// available reports whether a Deployment has its rendered spec and an available pod. For the scheduler, new pods must also be assigned to it, which depends on
// what was read before the objects were written.
func (p *pass) available(live *appsv1.Deployment) bool {
	if live.Name == render.OperandScheduler && !p.input.SchedulerAvailable {
		return false
	}
	return live.Status.ObservedGeneration >= live.Generation && live.Status.AvailableReplicas > 0
}

// readOperand reads the live object of a rendered operand of the kind. missing is a text for messages if it does not exist.
func (r *Reconciler) readOperand(ctx context.Context, kind string, rendered, live client.Object) (missing string, err error) {
	switch err := r.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(rendered), live); {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s %s does not exist yet", kind, rendered.GetName()), nil
	case err != nil:
		return "", fmt.Errorf("read %s %s: %w", kind, rendered.GetName(), err)
	}
	return "", nil
}

// recordConditionEvents records an Event for each condition whose status or reason changed.
func (r *Reconciler) recordConditionEvents(object client.Object, old, now []metav1.Condition) {
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
		r.Events.Event(object, kind, c.Type+string(c.Status), "UpdateCondition", text)
	}
}
