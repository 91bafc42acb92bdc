package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// gpuFindings returns the findings about the node's GPUs: faults, remediations, overlapping allocations, withheld memory slices and taints.
func (n *nodeState) gpuFindings() []Finding {
	var found []Finding
	for _, g := range n.gpus {
		for _, a := range g.Faults {
			found = append(found, n.faultFinding(g, a))
		}
		if len(g.Faults) == 0 && (g.Held != nil || n.remedyStatus(g.Name) != nil) {
			found = append(found, n.heldFinding(g))
		}
		for _, conflict := range g.Conflicts {
			found = append(found, forGPU(g, Finding{
				Severity: gpu.Critical.String(), Reason: ReasonConflict, Message: strings.TrimSuffix(conflict, "."),
				NextStep: "delete one of the claims and its pods; make sure that only one scheduler allocates these devices",
			}))
		}
		if g.MemorySlices != nil && len(g.MemorySlices.Withheld) > 0 {
			found = append(found, forGPU(g, Finding{
				Severity: gpu.Warning.String(), Reason: ReasonWithheld,
				Message:  fmt.Sprintf("memory slices %s are withheld: MIG devices exist there that Tessera did not create", joinInts(g.MemorySlices.Withheld)),
				NextStep: "list them on the node with nvidia-smi mig -lgi and destroy those that are not needed",
			}))
		}
		found = append(found, taintFindings(g)...)
	}
	return found
}

// forGPU returns the finding with the GPU's name and index.
func forGPU(g gpus.GPU, f Finding) Finding {
	f.GPU, f.Index = g.Name, &g.Index
	return f
}

// heldFinding is the finding about a GPU that is out of service for a remediation although no fault is reported any more.
func (n *nodeState) heldFinding(g gpus.GPU) Finding {
	f := forGPU(g, Finding{
		Severity: gpu.Warning.String(), Reason: ReasonHeld, Message: "out of service for remediation", Status: n.remediationStatus(g, gpus.Fault{}),
	})
	if g.Held != nil {
		f.Since = g.Held.Since
		f.Message += detail(g.Held.Reason)
	}
	return f
}

// faultFinding is the finding about a hardware fault.
func (n *nodeState) faultFinding(g gpus.GPU, a gpus.Fault) Finding {
	judged := gpu.Rules{}.Judge(gpu.Signal(a.Signal), a.XID)
	f := forGPU(g, Finding{Severity: a.Severity, Reason: ReasonFault, Fault: &a, Since: a.Since, Message: a.String() + ": " + judged.Meaning})
	f.Pods = n.affectedPods(g.Holders, func(h gpus.Holder) bool { return a.Affects(h.Device) })
	if isSevere(a) {
		f.Status = n.remediationStatus(g, a)
	}
	f.NextStep = n.faultHelp(g, a, judged)
	return f
}

// isSevere reports whether the fault is Critical or Fatal.
func isSevere(a gpus.Fault) bool { return gpus.SeverityRank(a.Severity) > int(gpu.Warning) }

// faultHelp returns the next step: the one that the installer's remediation waits for, otherwise that of the table of faults.
func (n *nodeState) faultHelp(g gpus.GPU, a gpus.Fault, judged gpu.Judgement) string {
	s := n.remedyStatus(g.Name)
	switch {
	case s != nil && s.Step == v1alpha1.RemediationStepRebootRequested:
		return fmt.Sprintf("reboot node %s; its GPUs are validated after the reboot", n.name)
	case s != nil && s.Step == v1alpha1.RemediationStepReplace:
		return fmt.Sprintf("replace the GPU (%s), or inspect it and reboot the node", g.UUID)
	case s != nil && s.Step == v1alpha1.RemediationStepSuggested && isSevere(a) && faultRemedy(a) > gpu.Wait:
		return judged.Help + "; " + n.actModeEffect(g)
	case n.gpuNode == nil && isSevere(a) && faultRemedy(a) == gpu.Reset:
		return fmt.Sprintf("%s; without an installer: drain node %s and reboot it", judged.Help, n.name)
	}
	return judged.Help
}

// actModeEffect returns what remediation mode Act would do about the GPU: the strongest remedy among its severe faults decides.
func (n *nodeState) actModeEffect(g gpus.GPU) string {
	need := gpu.Wait
	for _, a := range g.Faults {
		if isSevere(a) {
			need = max(need, faultRemedy(a))
		}
	}
	mayReboot := n.policy == nil || n.policy.Spec.Remediation.Reboot == nil || *n.policy.Spec.Remediation.Reboot
	switch {
	case need <= gpu.Reset:
		return "remediation.mode: Act does this automatically"
	case need == gpu.Reboot && mayReboot:
		return "with remediation.mode: Act the installer requests a reboot of the node"
	}
	return "with remediation.mode: Act the installer requests manual intervention"
}

// faultRemedy returns what clears the fault.
func faultRemedy(a gpus.Fault) gpu.Remedy {
	var r gpu.Remedy
	// UnmarshalText returns no error: an unknown name is Reset.
	_ = r.UnmarshalText([]byte(a.Remedy))
	return r
}

// remedyStatus returns the installer's status of the GPU's remediation, nil without one.
func (n *nodeState) remedyStatus(name string) *v1alpha1.RemediationStatus {
	if n.gpuNode == nil {
		return nil
	}
	i := slices.IndexFunc(n.gpuNode.Status.Remediations, func(s v1alpha1.RemediationStatus) bool { return s.GPU == name })
	if i < 0 {
		return nil
	}
	return &n.gpuNode.Status.Remediations[i]
}

// remediationStatus returns the installer's and the agent's status of the GPU's remediation, or why there is none.
func (n *nodeState) remediationStatus(g gpus.GPU, a gpus.Fault) []string {
	s := n.remedyStatus(g.Name)
	if s == nil {
		return n.noRemediationReason(a)
	}
	text := fmt.Sprintf("%s for %s", s.Step, n.age(s.Since))
	if s.Attempts > 0 {
		text += ", " + quantity(int(s.Attempts), "reset") + " so far"
	}
	status := []string{text + detail(s.Message)}
	agent := n.gpuNode.Status.Agent
	if agent == nil {
		return status
	}
	for _, order := range n.gpuNode.Spec.Remediations {
		for _, answer := range agent.Remediations {
			if order.GPU == g.Name && answer.ID == order.ID {
				status = append(status, fmt.Sprintf("agent: %s, %s prepared%s", answer.State, quantity(int(answer.PreparedClaims), "claim"), detail(answer.Message)))
			}
		}
	}
	return status
}

// noRemediationReason returns why nothing is done about the fault; nil when the installer has not decided yet.
func (n *nodeState) noRemediationReason(a gpus.Fault) []string {
	switch {
	case n.gpuNode == nil:
		return []string{"none: no installer manages this node"}
	case faultRemedy(a) == gpu.Wait:
		return []string{"none: the fault clears when its condition is absent for a while"}
	case v1alpha1.RemediationPaused(n.gpuNode.Annotations):
		return []string{"none: remediation is paused by the annotation " + v1alpha1.AnnotationPauseRemediation + " of the GPUNode"}
	case n.policy == nil:
		return nil
	case v1alpha1.RemediationPaused(n.policy.Annotations):
		return []string{"none: remediation is paused by the annotation " + v1alpha1.AnnotationPauseRemediation + " of the ClusterPolicy"}
	case n.policy.Spec.Remediation.Mode == v1alpha1.RemediationOff:
		return []string{"none: spec.remediation.mode of the ClusterPolicy is Off"}
	}
	return nil
}
