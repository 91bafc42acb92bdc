package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
	"github.com/tessera-gpu/tessera/installer/render"
)

// gpuRemediation is one GPU that is not well, or is being brought back: what is known of it, and what becomes of it.
type gpuRemediation struct {
	remediation.Observed
	decision remediation.Decision
	victims  []action.PodRef
	// failed is why it could not be looked at: then nothing is done about it, and everything else is.
	failed error
}

// Faults are those of the node's GPUs that count.
func (s *nodeObservation) Faults() []v1alpha1.GPUFault { return SevereFaults(s.Status.Agent, s.Node.BootID) }

// SevereFaults are the faults that count: Critical and Fatal ones of this boot, as the agent says.
func SevereFaults(agent *v1alpha1.AgentStatus, bootID string) []v1alpha1.GPUFault {
	if agent == nil || agent.BootID != bootID {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(agent.Faults), func(f v1alpha1.GPUFault) bool { return f.Severity != "Critical" && f.Severity != "Fatal" })
}

// faultyGPUs names the GPUs that are looked at: those with faults, and those of which the GPUNode says that something is or was to be done.
func (s *nodeObservation) faultyGPUs() []string {
	var names []string
	for _, f := range s.Faults() {
		names = append(names, f.GPU)
	}
	for _, order := range s.Spec.Remedies {
		names = append(names, order.GPU)
	}
	for _, status := range s.Status.Remedies {
		names = append(names, status.GPU)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// examine looks at the GPUs that are not well and decides what becomes of them.
func (r *nodeReconciler) examine(ctx context.Context, cat *Catalog, s *nodeObservation, d phase.Decision) error {
	s.patients = s.look(cat, d)
	if len(s.patients) == 0 {
		return nil
	}
	for i := range s.patients {
		if p := &s.patients[i]; p.Policy.Mode != v1alpha1.RemediationOff || p.Order != nil {
			p.failed = r.readHolders(ctx, cat, s, p)
		}
	}
	granted, err := r.grantPlaces(ctx, cat, s)
	if err != nil {
		return err
	}
	for i := range s.patients {
		p := &s.patients[i]
		met := r.obstacles.Of(GPUKey(s.GPUNode.Name, p.GPU))
		p.Granted, p.Obstacle = granted[remediation.Key{Node: s.GPUNode.Name, GPU: p.GPU}], met.Text
		if p.decision = remediation.Next(p.Observed); p.failed != nil {
			p.decision = remediation.Decision{Status: p.Status, Action: remediation.Wait}
		}
		if status := p.decision.Status; status != nil {
			status.Message = met.Explain(string(p.decision.Action), status.Message)
		}
		if c, asks := p.Candidate(s.GPUNode.Name); asks && !c.Begun && p.decision.Action == remediation.Direct {
			r.taken.add(s.GPUNode.Name, p.GPU)
		}
		klog.FromContext(ctx).V(2).Info("Decided", "node", s.GPUNode.Name, "gpu", p.GPU, "op", p.decision.Action)
	}
	return nil
}

// look is what the GPUNode and the cache tell of the sick GPUs of a node. d is what is decided about the node itself.
func (s *nodeObservation) look(cat *Catalog, d phase.Decision) []gpuRemediation {
	var patients []gpuRemediation
	history := map[string][]v1alpha1.RemedyRecord{}
	for _, record := range s.Status.History {
		history[record.GPU] = append(history[record.GPU], record)
	}
	for _, name := range s.faultyGPUs() {
		o := remediation.Observed{
			Now: s.Now, GPU: name, Policy: cat.remediation(s), BootID: s.Node.BootID, Speaks: s.AgentRuns(), History: history[name],
			Paused: cat.paused(s.GPUNode), Busy: s.busyReason(d), Monitored: s.Monitored,
		}
		o.Faults = slices.DeleteFunc(s.Faults(), func(f v1alpha1.GPUFault) bool { return f.GPU != name })
		o.Order = findCopy(s.Spec.Remedies, func(order v1alpha1.Remedy) bool { return order.GPU == name })
		o.Status = findCopy(s.Status.Remedies, func(status v1alpha1.RemedyStatus) bool { return status.GPU == name })
		if o.Order != nil && s.Status.Agent != nil {
			o.Agent = findCopy(s.Status.Agent.Remedies, func(said v1alpha1.AgentRemedy) bool { return said.ID == o.Order.ID })
		}
		patients = append(patients, gpuRemediation{Observed: o})
	}
	return patients
}

// findCopy returns a copy of the first that is; nil: none is.
func findCopy[T any](list []T, is func(T) bool) *T {
	if at := slices.IndexFunc(list, is); at >= 0 {
		return new(list[at])
	}
	return nil
}

// remediation is what policies say about the GPUs of a node. Where no policy chooses the node, nothing is done.
func (cat *Catalog) remediation(s *nodeObservation) remediation.Policy {
	spec := cat.Policy.Spec
	p := remediation.Policy{
		Mode: spec.Remediation.Mode, Attempts: *spec.Remediation.Attempts, Reboot: *spec.Remediation.Reboot,
		Validates:    s.Wanted.Validator && !s.Wanted.Sandbox,
		DrainTimeout: spec.Remediation.Drain.Timeout.Duration, ValidateTimeout: spec.Validator.Timeout.Duration,
	}
	if limit := spec.Remediation.Drain.WaitTimeout; limit != nil {
		p.WaitTimeout = limit.Duration
	}
	if !s.Wanted.Managed {
		p.Mode = v1alpha1.RemediationOff
	}
	return p
}

// paused says where a person has stopped remediation; empty: nowhere.
func (cat *Catalog) paused(gpunode *v1alpha1.GPUNode) string {
	switch {
	case v1alpha1.RemediationPaused(gpunode.Annotations):
		return "GPUNode " + gpunode.Name
	case v1alpha1.RemediationPaused(cat.Policy.Annotations):
		return "ClusterPolicy " + v1alpha1.ClusterPolicyName
	}
	return ""
}

// busyReason says what else is being done with a node, or keeps its GPUs from being worked on; empty: nothing. A node that is only being proven, or that could not be,
// is not busy: its sick GPUs may be why. Nor is one whose agent is away for a moment.
func (s *nodeObservation) busyReason(d phase.Decision) string {
	switch {
	case !s.Node.Exists:
		return "the Node is gone"
	case !s.Node.Ready:
		return "the node is not Ready"
	case s.Spec.Maintenance != nil:
		return "a maintenance of the node (" + string(s.Spec.Maintenance.Operation) + ")"
	case s.Tainted || s.Node.Labels.Maintenance != "" || d.Phase == v1alpha1.PhaseUpgrading:
		return "a maintenance of the node"
	case !s.Wanted.Managed || d.Phase == v1alpha1.PhaseAbsent:
		return "no ClusterPolicy chooses the node"
	}
	switch d.Reason {
	case phase.ReasonDevicePluginPresent, phase.ReasonConflict, phase.ReasonHostDriverTooOld, phase.ReasonHostDriverRefused, phase.ReasonNoDriver:
		return "the node is " + string(d.Phase) + " (" + d.Reason + ")" // no reset could be made there
	}
	switch d.Phase {
	case v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady, v1alpha1.PhaseAgentReady:
		return "the node is " + string(d.Phase)
	case v1alpha1.PhaseAbsent, v1alpha1.PhaseValidating, v1alpha1.PhaseReady, v1alpha1.PhaseUpgrading, v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed,
		v1alpha1.PhaseRolledBack:
	}
	return ""
}

// isMonitoringPod reports whether a pod is of an operand that keeps GPUs open to watch them.
func isMonitoringPod(pod corev1.Pod) bool {
	return render.IsMonitoring(pod.Labels[render.LabelName])
}
