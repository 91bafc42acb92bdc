package remediation

import (
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// policyFor returns the remediation policy for the GPUs of a node. On a node without operands it is off.
func policyFor(c *catalog.Catalog, node *nodestate.Observation) remediation.Policy {
	spec := c.Policy.Spec
	p := remediation.Policy{
		Mode: spec.Remediation.Mode, Attempts: *spec.Remediation.Attempts, Reboot: *spec.Remediation.Reboot,
		Validates:    node.Wanted.Validator && !node.Wanted.Sandbox,
		DrainTimeout: spec.Remediation.Drain.Timeout.Duration, ValidateTimeout: spec.Validator.Timeout.Duration,
	}
	if limit := spec.Remediation.Drain.WaitTimeout; limit != nil {
		p.WaitTimeout = limit.Duration
	}
	if !node.Wanted.Managed {
		p.Mode = v1alpha1.RemediationOff
	}
	return p
}

// pausedBy returns the object whose annotation pauses remediation, or an empty text.
func pausedBy(c *catalog.Catalog, gpunode *v1alpha1.GPUNode) string {
	switch {
	case v1alpha1.RemediationPaused(gpunode.Annotations):
		return "GPUNode " + gpunode.Name
	case v1alpha1.RemediationPaused(c.Policy.Annotations):
		return "ClusterPolicy " + v1alpha1.ClusterPolicyName
	}
	return ""
}

// busyReason returns why no remediation can begin or continue on a node: another operation is under way there, or no reset would be possible. It is empty
// otherwise, also for a node that is being validated or whose validation failed, since its faulty GPUs may be the cause, and for one whose agent is
// restarting.
func busyReason(node *nodestate.Observation, d phase.Decision) string {
	switch {
	case !node.Node.Exists:
		return "the Node does not exist"
	case !node.Node.Ready:
		return "the node is not Ready"
	case node.Spec.Maintenance != nil:
		return "the node is in maintenance (" + string(node.Spec.Maintenance.Operation) + ")"
	case node.Tainted || node.Node.Labels.Maintenance != "" || d.Phase == v1alpha1.PhaseUpgrading:
		return "the node is in maintenance"
	case !node.Wanted.Managed || d.Phase == v1alpha1.PhaseAbsent:
		return "no ClusterPolicy selects the node"
	}
	switch d.Reason {
	case phase.ReasonDevicePluginPresent, phase.ReasonKubeletTooOld, phase.ReasonConflict, phase.ReasonHostDriverTooOld, phase.ReasonHostDriverRefused,
		phase.ReasonNoDriver:
		return "the node is " + string(d.Phase) + " (" + d.Reason + ")"
	}
	switch d.Phase {
	case v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady, v1alpha1.PhaseAgentReady:
		return "the node is " + string(d.Phase)
	case v1alpha1.PhaseAbsent, v1alpha1.PhaseValidating, v1alpha1.PhaseReady, v1alpha1.PhaseUpgrading, v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed,
		v1alpha1.PhaseRolledBack:
	}
	return ""
}
