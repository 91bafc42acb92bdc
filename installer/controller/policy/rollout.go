package policy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/rollout"
)

// grantRollouts decides for each owner which nodes may begin, grants these what policies want, and writes the statuses of the policies. It returns the time
// after which to decide again; 0 means never.
func (r *Reconciler) grantRollouts(ctx context.Context, p *pass) (time.Duration, error) {
	decisions, granted := map[string]rollout.Decision{}, map[string]granting{}
	var after time.Duration
	for _, owner := range p.owners() {
		d := rollout.Next(p.rolloutFleet(owner))
		decisions[owner] = d
		r.Metrics.SetRolloutStage(owner, d.Status)
		if len(d.Waits) > 0 {
			klog.FromContext(ctx).V(2).Info("Nodes wait", "owner", owner, "nodes", d.Waits)
		}
		after = trigger.Sooner(after, d.After)
		for _, name := range d.Grant {
			granted[name] = grantAll
		}
		for _, name := range d.Restart {
			granted[name] = grantDriver
		}
	}
	var failed error
	for _, m := range p.members {
		failed = errors.Join(failed, r.grant(ctx, m, granted[m.node.Name]))
	}
	return after, errors.Join(failed, r.updatePolicyStatuses(ctx, p, decisions))
}

// owners returns the owners of drivers, sorted.
func (p *pass) owners() []string {
	owners := map[string]bool{catalog.PolicyOwner: true}
	for _, d := range p.Drivers {
		owners[d.Name] = true
	}
	return slices.Sorted(maps.Keys(owners))
}

// rolloutFleet returns the nodes of an owner as input of the rollout.
func (p *pass) rolloutFleet(owner string) rollout.Fleet {
	f := rollout.Fleet{Now: p.now, Policy: p.Policy.Spec.Upgrade, Status: p.Policy.Status.Rollout}
	annotations := p.Policy.Annotations
	f.Paused = annotations[v1alpha1.AnnotationPause] != ""
	for _, d := range p.Drivers {
		if d.Name != owner {
			continue
		}
		f.Status, annotations = d.Status.Rollout, d.Annotations
		f.Paused = f.Paused || annotations[v1alpha1.AnnotationPause] != ""
		if d.Spec.Upgrade != nil {
			f.Policy = d.Spec.Upgrade.Complete()
		}
	}
	f.Resumed = annotations[v1alpha1.AnnotationResume]
	for _, m := range p.members {
		if m.assignment.Managed() && m.assignment.Owner == owner {
			f.Nodes = append(f.Nodes, m.rolloutNode())
		}
	}
	return f
}

// rolloutNode returns a node as input of the rollout.
func (m member) rolloutNode() rollout.Node {
	status := m.gpunode.Status
	n := rollout.Node{
		Name: m.node.Name, Current: m.current(), Phase: status.Phase, Since: status.Since.Time, Attempt: status.Attempt, Pods: m.pods,
		New:           m.neverInService(),
		Change:        m.modeChanges() || m.restartWanted(),
		Changing:      m.modeChanging() || m.restarting(),
		Down:          m.down(),
		DriverRestart: status.DriverRestart != "",
		Unseen:        m.gpunode.Generation != status.ObservedGeneration,
		Available:     available(m.node),
		Skipped:       m.node.Labels[v1alpha1.LabelSkipUpgrade] == "true" || m.gpunode.Annotations[v1alpha1.AnnotationPause] != "",
	}
	n.Wanted, _ = m.change()
	if d := status.LastGoodDriver; d != nil {
		n.LastGood = d.Digest
	}
	if agent := status.Agent; agent != nil {
		n.Clique = agent.Clique
	}
	return n
}

// neverInService reports whether the node has never been in service. A node whose GPUNode was deleted still has its labels. A node whose host's driver was
// kept and has been removed counts as new.
func (m member) neverInService() bool {
	status := m.gpunode.Status
	if h := status.Hardware; m.current() == "" && m.wanted != nil && h != nil && h.HostDriver == "" && h.LoadedDriver == "" {
		return m.node.Labels[v1alpha1.LabelDriver] == ""
	}
	return status.LastGoodDriver == nil && status.Validated == nil && m.node.Labels[v1alpha1.LabelReady] != "true"
}

// down reports whether no pod can use the node's GPUs: its driver failed, and neither discovery nor agent report a loaded one since the boot. Pods that
// stayed bound to the node through the boot hold claims and cannot start, so they do not count.
func (m member) down() bool {
	status, boot := m.gpunode.Status, m.node.Status.NodeInfo.BootID
	hardware, agent := status.Hardware, status.Agent
	if status.Phase != v1alpha1.PhaseFailed || hardware == nil || hardware.BootID != boot || hardware.LoadedDriver != "" {
		return false
	}
	if agent != nil && agent.BootID == boot && agent.DriverVersion != "" {
		return false
	}
	return !slices.ContainsFunc(status.Components, func(c v1alpha1.ComponentStatus) bool {
		return c.Name == phase.ComponentDriver && c.State == v1alpha1.ComponentReady
	})
}

// available reports whether Kubernetes schedules pods on a node.
func available(node *corev1.Node) bool {
	n := nodestate.ObserveNode(node)
	return n.Ready && !n.Cordoned
}

// granting is what a node is granted in a pass.
type granting int

const (
	grantNothing granting = iota
	grantDriver
	grantAll // driver and MIG mode
)

// grant writes what a node is to have into its GPUNode: driver and MIG mode when its turn has come, the agent's pool at any time.
func (r *Reconciler) grant(ctx context.Context, m member, turn granting) error {
	if !m.assignment.Managed() || m.assignment.Conflict != "" {
		return nil
	}
	spec := m.gpunode.Spec
	g := action.GrantOf(m.gpunode)
	g.AgentPool = m.assignment.AgentPool
	if g.DriverRestart != m.gpunode.Status.DriverRestart {
		g.DriverRestart = "" // of a pod that has been replaced
	}
	if turn == grantAll {
		g.MIGMode, g.DriverRestart = m.assignment.MIGMode, m.gpunode.Status.DriverRestart
	}
	if turn != grantNothing && m.wanted != nil {
		g.Driver = m.wanted
	}
	if m.assignment.MIGMode == "" {
		g.MIGMode = ""
	}
	if equality.Semantic.DeepEqual(g.Driver, spec.Driver) && g.AgentPool == spec.AgentPool && g.MIGMode == spec.MIGMode && g.DriverRestart == spec.DriverRestart {
		return nil
	}
	return r.Cluster.WriteGrant(ctx, m.gpunode.DeepCopy(), g) // a copy, because the original belongs to the cache
}
