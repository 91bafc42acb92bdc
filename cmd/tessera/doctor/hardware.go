package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// hardware returns what is wrong with the node's GPUs and who holds them.
func (p *patient) hardware() []Finding {
	var found []Finding
	for _, g := range p.gpus {
		for _, a := range g.Ailments {
			found = append(found, p.fault(g, a))
		}
		if len(g.Ailments) == 0 && (g.Held != nil || p.remedy(g.Name) != nil) {
			f := on(g, Finding{Severity: gpu.Warning.String(), Reason: ReasonHeld, Message: "out of service for a remedy", Doing: p.doing(g, gpus.Ailment{})})
			if g.Held != nil {
				f.Since = g.Held.Since
				f.Message += told(g.Held.Reason)
			}
			found = append(found, f)
		}
		for _, conflict := range g.Conflicts {
			found = append(found, on(g, Finding{
				Severity: gpu.Critical.String(), Reason: ReasonConflict, Message: strings.TrimSuffix(conflict, "."),
				Help: "delete one of the claims with its pods; let no second scheduler allocate these devices",
			}))
		}
		if g.Slices != nil && len(g.Slices.Withheld) > 0 {
			found = append(found, on(g, Finding{
				Severity: gpu.Warning.String(), Reason: ReasonWithheld,
				Message: fmt.Sprintf("memory slices %s are withheld: MIG instances live there that Tessera did not make", strings.Join(strings.Fields(strings.Trim(fmt.Sprint(g.Slices.Withheld), "[]")), ", ")),
				Help:    "look at them on the node with nvidia-smi mig -lgi, and destroy those that nobody needs",
			}))
		}
		found = append(found, p.tainted(g)...)
	}
	return found
}

// on puts the GPU into a finding.
func on(g gpus.GPU, f Finding) Finding {
	f.GPU, f.Index = g.Name, &g.Index
	return f
}

// told is a colon and the text; nothing without one.
func told(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// fault is a finding about a fault of the hardware.
func (p *patient) fault(g gpus.GPU, a gpus.Ailment) Finding {
	judged := gpu.Rules{}.Judge(gpu.Signal(a.Signal), a.XID)
	f := on(g, Finding{Severity: a.Severity, Reason: ReasonFault, Ailment: &a, Since: a.Since, Message: a.String() + ": " + judged.Meaning})
	f.Pods = p.sufferers(g.Holders, func(h gpus.Holder) bool { return a.Affects(h.Device) })
	if gpus.Rank(a.Severity) > int(gpu.Warning) {
		f.Doing = p.doing(g, a)
	}
	f.Help = p.help(g, a, judged)
	return f
}

// help says what to do: where the installer asks for a person, what it asks for, and else what the rules say.
func (p *patient) help(g gpus.GPU, a gpus.Ailment, judged gpu.Judgement) string {
	bad := gpus.Rank(a.Severity) > int(gpu.Warning)
	s := p.remedy(g.Name)
	switch {
	case s != nil && s.Step == v1alpha1.RemedyRebootRequested:
		return fmt.Sprintf("reboot node %s; its GPUs are proven when they are back", p.name)
	case s != nil && s.Step == v1alpha1.RemedyReplace:
		return fmt.Sprintf("replace the GPU (%s), or look at it and reboot the node", g.UUID)
	case s != nil && s.Step == v1alpha1.RemedySuggested && bad && remedyOf(a) > gpu.Wait:
		return judged.Help + "; " + p.acting(g)
	case p.gpuNode == nil && bad && remedyOf(a) == gpu.Reset:
		return fmt.Sprintf("%s; without an installer: drain node %s and reboot it", judged.Help, p.name)
	}
	return judged.Help
}

// acting says what mode Act would do about the GPU, which follows from the strongest remedy that its faults need.
func (p *patient) acting(g gpus.GPU) string {
	need := gpu.Wait
	for _, a := range g.Ailments {
		if gpus.Rank(a.Severity) > int(gpu.Warning) {
			need = max(need, remedyOf(a))
		}
	}
	asks := p.policy == nil || p.policy.Spec.Remediation.Reboot == nil || *p.policy.Spec.Remediation.Reboot
	switch {
	case need <= gpu.Reset:
		return "the installer does it with remediation.mode: Act"
	case need == gpu.Reboot && asks:
		return "with remediation.mode: Act the installer asks for a reboot of the node"
	}
	return "with remediation.mode: Act the installer asks for a person"
}

// remedyOf is what ends the ailment.
func remedyOf(a gpus.Ailment) gpu.Remedy {
	var r gpu.Remedy
	// It never fails: what it does not know is Reset.
	_ = r.UnmarshalText([]byte(a.Remedy))
	return r
}

// remedy returns where the installer stands with the GPU; nil: nowhere.
func (p *patient) remedy(name string) *v1alpha1.RemedyStatus {
	if p.gpuNode == nil {
		return nil
	}
	i := slices.IndexFunc(p.gpuNode.Status.Remedies, func(s v1alpha1.RemedyStatus) bool { return s.GPU == name })
	if i < 0 {
		return nil
	}
	return &p.gpuNode.Status.Remedies[i]
}

// doing says what is being done about the GPU, or why nothing is.
func (p *patient) doing(g gpus.GPU, a gpus.Ailment) []string {
	s := p.remedy(g.Name)
	if s == nil {
		return p.idle(a)
	}
	text := fmt.Sprintf("%s for %s", s.Step, p.age(s.Since))
	if s.Attempts > 0 {
		text += fmt.Sprintf(", reset %d times so far", s.Attempts)
	}
	doing := []string{text + told(s.Message)}
	if agent := p.gpuNode.Status.Agent; agent != nil {
		for _, order := range p.gpuNode.Spec.Remedies {
			for _, answer := range agent.Remedies {
				if order.GPU == g.Name && answer.ID == order.ID {
					doing = append(doing, fmt.Sprintf("the agent: %s, %s prepared%s", answer.State, count(int(answer.Prepared), "claim"), told(answer.Message)))
				}
			}
		}
	}
	return doing
}

// idle says why nothing is being done.
func (p *patient) idle(a gpus.Ailment) []string {
	switch {
	case p.gpuNode == nil:
		return []string{"nothing: no installer looks after the node"}
	case remedyOf(a) == gpu.Wait:
		return []string{"nothing: it is over when it has not been seen for a while"}
	case v1alpha1.RemediationPaused(p.gpuNode.Annotations):
		return []string{"nothing: remediation is paused by the annotation " + v1alpha1.AnnotationPauseRemediation + " of the GPUNode"}
	case p.policy == nil:
		return nil
	case v1alpha1.RemediationPaused(p.policy.Annotations):
		return []string{"nothing: remediation is paused by the annotation " + v1alpha1.AnnotationPauseRemediation + " of the ClusterPolicy"}
	case p.policy.Spec.Remediation.Mode == v1alpha1.RemediationOff:
		return []string{"nothing: spec.remediation.mode of the ClusterPolicy is Off"}
	}
	return nil
}
