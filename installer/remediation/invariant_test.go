package remediation

import (
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// invariant must hold in every state for the action that the installer is about to perform on a GPU.
type invariant struct {
	name   string
	broken func(w *world, c *card, d Decision) bool
}

// awaits reports whether the GPU waits for a reboot or an administrator.
func (c *card) awaits() bool {
	return c.step == v1alpha1.RemediationStepRebootRequested || c.step == v1alpha1.RemediationStepReplace
}

// taken counts the GPUs that the installer holds and that do not wait for an administrator.
func taken(w *world) int {
	n := 0
	for i := range w.cards {
		c := &w.cards[i]
		if c.order != "" && c.requestedBoot == 0 && (c.step != v1alpha1.RemediationStepRestore || c.recordID != c.id) {
			n++
		}
	}
	return n
}

func (w *world) halted() bool {
	return w.paused || w.busy || w.mode != v1alpha1.RemediationAct
}

func becomes(d Decision, steps ...v1alpha1.RemediationStep) bool {
	return d.Status != nil && slices.Contains(steps, d.Status.Step)
}

// dead are the reasons of aborted attempts. A GPU that was reset then waits for a reboot.
var dead = []string{ReasonAgentNotResponding, ReasonMonitorsNotRemoved, ReasonDrainBlocked, ReasonGPUBusy}

var invariants = []invariant{
	{"a GPU that was reset is given back only when it is proven, or the node has booted", func(w *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepRestore) && c.step != v1alpha1.RemediationStepRestore && c.order != "" && c.touched && !c.proved &&
			(!w.noValidator || !w.reported) && d.Status.Reason != ReasonNotValidated
	}},
	{"a GPU that cannot be validated because the agent is silent or the node is busy stays held", func(w *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepRestore) && c.step == v1alpha1.RemediationStepValidate && d.Status.Reason == ReasonNotValidated && (!w.reported || w.busy && d.Status.Attempts > 0)
	}},
	{"nothing begins without rest after a maintenance came between", func(_ *world, c *card, d Decision) bool {
		return begins(c, d) && becomes(d, v1alpha1.RemediationStepHold) && c.recordBusy[0] && !c.rested
	}},
	{"pods have one time to leave", func(_ *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepDrain) && c.step == v1alpha1.RemediationStepDrain && c.late && d.Status.Since != since(true)
	}},
	{"an agent is not accused before the time", func(_ *world, _ *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepDrain) && strings.Contains(d.Status.Message, "and no pod uses them")
	}},
	{"a reset is ordered only with nothing prepared and monitoring gone", func(w *world, c *card, d Decision) bool {
		return d.Action == Direct && d.Order.Step == v1alpha1.OrderReset && (c.prepared || w.monitored || c.check != phase.ValidationNone)
	}},
	{"a reset begins only when remediation is not halted", func(w *world, _ *card, d Decision) bool {
		return d.Action == Direct && d.Order.Step == v1alpha1.OrderReset && w.halted()
	}},
	{"a GPU is taken out of service only when remediation is not halted", func(w *world, c *card, d Decision) bool {
		return d.Action == Direct && d.Order.Step == v1alpha1.OrderHold && c.order == "" && w.halted()
	}},
	{"no pod is evicted before the GPU is held", func(w *world, c *card, d Decision) bool {
		return d.Action == Evict && (c.order == "" || w.agent && w.reported && c.gate == "")
	}},
	{"no pod is evicted on the report of an absent agent", func(w *world, _ *card, d Decision) bool { return d.Action == Evict && !w.reported }},
	{"a GPU that cannot be drained stays in service, and no other pod is evicted", func(w *world, c *card, d Decision) bool {
		return w.stays && c.user == phase.PodReady && (d.Action == Evict || d.Action == Direct && c.order == "" && c.step != v1alpha1.RemediationStepHold)
	}},
	{"no pod is evicted if that does not end the fault", func(w *world, c *card, d Decision) bool {
		return d.Action == Evict && w.agent && w.reported && (c.remedy < gpu.Restart || c.remedy > gpu.Reset)
	}},
	{"no pod is evicted while remediation is halted", func(w *world, _ *card, d Decision) bool { return d.Action == Evict && w.halted() }},
	{"who is waited for is not evicted before the time", func(w *world, c *card, d Decision) bool {
		return w.waited && d.Action == Direct && c.order == "" && c.user == phase.PodReady && !w.blocked && !c.rested
	}},
	{"a GPU that was reset recovers only after a validation", func(w *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepRestore) && c.step != v1alpha1.RemediationStepRestore && d.Status.Reason == ReasonRecovered && c.order != "" && (d.Status.Attempts > 0 || c.requestedBoot > 0) && c.remedy == noFault &&
			!c.proved && !w.noValidator
	}},
	{"who recovered is well", func(_ *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepRestore) && c.step != v1alpha1.RemediationStepRestore && d.Status.Reason == ReasonRecovered && c.remedy > gpu.Wait &&
			faultName(c.remedy) == c.about && c.seen
	}},
	{"nothing of a proof is left when the GPU is given back", func(_ *world, c *card, d Decision) bool {
		return d.Action == Release && c.check != phase.ValidationNone
	}},
	{"a GPU is not given back in the middle of its reset", func(w *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepRestore) && c.step == v1alpha1.RemediationStepReset && c.state == v1alpha1.RemediationStateResetting && c.gate == v1alpha1.OrderReset && c.order == v1alpha1.OrderReset &&
			w.agent && !c.late
	}},
	{"an order is not changed in the middle of its reset", func(w *world, c *card, d Decision) bool {
		return d.Action == Direct && d.Order.Step != v1alpha1.OrderReset && c.step == v1alpha1.RemediationStepReset && c.gateID == c.orderID && c.state == v1alpha1.RemediationStateResetting && c.gate == v1alpha1.OrderReset && c.order == v1alpha1.OrderReset &&
			w.agent && w.reported && !c.late
	}},
	{"a remediation is recorded once", func(_ *world, c *card, d Decision) bool {
		return d.Action == Release && d.Record != nil && d.Record.ID != c.recordID && !c.owed && c.id == d.Status.ID && c.step == d.Status.Step
	}},
	{"no remediation begins before the last one is recorded", func(_ *world, c *card, d Decision) bool { return begins(c, d) && c.owed }},
	{"what is done has an effect", func(w *world, c *card, d Decision) bool {
		after := *w
		o := &after.cards[slices.IndexFunc(w.cards[:], func(o card) bool { return o == *c })]
		if d.Action == Wait || d.Action == Evict || writeStatus(&after, o, d) {
			return false
		}
		perform(&after, o, d)
		return after == *w
	}},
	{"a reboot is requested only if the policy permits it and resets failed or cannot help", func(w *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepRebootRequested) && (w.noReboot && w.reported && c.requestedBoot == 0 ||
			c.requestedBoot == 0 && d.Status.Reason != ReasonResetTimeout && d.Status.Attempts+resetsOfLate(c) < 2 && (d.Status.Attempts == 0 || !slices.Contains(dead, d.Status.Reason)) && c.remedy < gpu.Reboot)
	}},
	{"a replacement is requested only when no reboot helps", func(w *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepReplace) && c.step != v1alpha1.RemediationStepReplace && !w.noReboot && c.remedy != gpu.Replace && !rebootedOfLate(w, c) && (c.requestedBoot == 0 || c.requestedBoot-1 == w.boot)
	}},
	{"a GPU that a person must look at stays away from claims", func(w *world, c *card, d Decision) bool {
		return d.Action == Release && c.awaits() && c.badProof && !w.halted() && !w.noValidator && c.check == phase.ValidationFailed
	}},
	{"a healthy GPU has no status", func(w *world, c *card, d Decision) bool {
		return w.reported && c.remedy == noFault && c.order == "" && d.Action == Wait && d.Status != nil && !c.awaits() && c.owed
	}},
	{"nothing begins on the word of an agent that is not there", func(w *world, c *card, d Decision) bool { return begins(c, d) && !w.reported }},
	{"a GPU is taken out only where that may help", func(w *world, c *card, d Decision) bool {
		return begins(c, d) && becomes(d, v1alpha1.RemediationStepHold) && w.reported && c.remedy > gpu.Reset
	}},
	{"a proof is made only when it is let through", func(_ *world, c *card, d Decision) bool {
		return d.Action == Validate && c.order != v1alpha1.OrderValidate
	}},
	{"a failed reset is not awaited", func(w *world, c *card, d Decision) bool {
		return w.reported && d.Action == Wait && becomes(d, v1alpha1.RemediationStepReset) && c.id == c.orderID && c.order == v1alpha1.OrderReset && c.state == v1alpha1.RemediationStateFailed &&
			c.gateID == c.orderID && d.Status.ID == c.orderID
	}},
	{"a GPU is proven after its reset when the fault is over", func(w *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepValidate) && c.step == v1alpha1.RemediationStepReset && w.reported && c.remedy > gpu.Wait
	}},
	{"a suggestion touches nothing", func(_ *world, _ *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepSuggested) && d.Action != Wait
	}},
	{"a GPU that failed its proof is not given back unproven", func(w *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepRestore) && c.step == v1alpha1.RemediationStepValidate && d.Status.Reason == ReasonNotValidated && c.requestedBoot > 0 && c.requestedBoot-1 == w.boot
	}},
	{"a GPU that was reset or failed its validation is not released by a halt", func(_ *world, c *card, d Decision) bool {
		return becomes(d, v1alpha1.RemediationStepRestore) && c.step != v1alpha1.RemediationStepRestore && c.order != "" && (d.Status.Attempts > 0 || c.check == phase.ValidationFailed) &&
			slices.Contains([]string{ReasonPaused, ReasonOff, ReasonNodeBusy}, d.Status.Reason)
	}},
	{"resets do not exceed the permitted attempts", func(_ *world, _ *card, d Decision) bool {
		return d.Status != nil && (d.Status.Attempts > 2 || d.Status.Attempts < 0)
	}},
}

// resetsOfLate counts the recent remediations that ended by a reset.
func resetsOfLate(c *card) int32 {
	n := int32(0)
	for i, outcome := range c.records {
		if outcome == v1alpha1.OutcomeRecovered && c.recordReset[i] {
			n++
		}
	}
	return n
}

// rebootedOfLate reports whether a recent remediation ended with a reboot.
func rebootedOfLate(w *world, c *card) bool {
	return slices.ContainsFunc(c.recordBoot[:], func(requestedBoot uint8) bool { return requestedBoot > 0 && requestedBoot-1 != w.boot })
}

// dishonest checks the status in a world without further events.
func (s *search) dishonest(w *world) string {
	for i := range w.cards {
		c := &w.cards[i]
		if !c.exists {
			continue
		}
		if name := unfair(w, c); name != "" {
			return name
		}
		if i == 0 && s.outcome != "" && w.budget == s.start.budget && c.records[0] != s.outcome {
			return "without obstacles the outcome is not the expected one"
		}
		if first := &s.start.cards[i]; w.budget == s.start.budget && c.recordBoot[0] > 0 && first.remedy == gpu.Reset && !first.badReset && !first.hangs &&
			!first.stubborn && !first.badProof {
			return "a reboot is requested where a reset helps"
		}
	}
	return ""
}

func unfair(w *world, c *card) string {
	reports := w.agent && w.reported
	switch {
	case c.check != phase.ValidationNone:
		return "what served its turn is left behind"
	case c.awaits() && c.order != v1alpha1.OrderHold && c.order != "":
		return "monitoring is kept away while a person is waited for"
	case c.order != "" && !c.awaits() && (c.step != v1alpha1.RemediationStepWaiting || !w.halted() || c.order != v1alpha1.OrderHold):
		return "a GPU is held without end"
	case c.order != "" && !c.awaits():
		return one(c.attempts > 0 || c.badProof, "a GPU is held that nothing was done to")
	case c.awaits() && (w.paused || w.mode != v1alpha1.RemediationAct):
		return "a request persists while remediation is halted"
	case c.awaits() && reports && c.remedy == noFault && c.reason != ReasonValidationFailed && !w.busy:
		return "a GPU that is well is not given back"
	case c.awaits() && reports && !w.busy && c.remedy == noFault && c.reason == ReasonValidationFailed && !c.badProof:
		return "a GPU that would pass its proof is not tried"
	case c.owed && !c.awaits():
		return "a remediation is not recorded"
	case c.step == v1alpha1.RemediationStepRebootRequested:
		return vain(w, c)
	case !reports || c.awaits():
		return ""
	case c.remedy < gpu.Restart || w.mode == v1alpha1.RemediationOff:
		return one(!c.has, "a GPU that needs no remediation has a status")
	case w.mode == v1alpha1.RemediationSuggest:
		return one(c.step == v1alpha1.RemediationStepSuggested, "nothing is suggested")
	case w.halted():
		return one(c.step == v1alpha1.RemediationStepWaiting && (c.reason == ReasonPaused || c.reason == ReasonNodeBusy), "the status lacks the reason of the wait")
	case w.stays && c.user != phase.PodAbsent:
		return one(c.step == v1alpha1.RemediationStepWaiting && c.reason == ReasonDrainBlocked, "the status lacks the blocking pod")
	default:
		return "a faulted GPU has no remediation"
	}
}

// vain checks a GPU that waits for a reboot without end.
func vain(w *world, c *card) string {
	rebooted := c.requestedBoot-1 != w.boot
	switch {
	case rebooted && c.reason != ReasonRebooted:
		return "a completed reboot is still requested"
	case !w.agent || !w.reported:
		return ""
	case !rebooted && (w.noReboot || c.remedy == gpu.Replace):
		return "a reboot is requested that is disabled or does not help"
	case rebooted && c.remedy > gpu.Wait && slices.Contains(strings.Split(c.about, ","), faultName(c.remedy)):
		return "a reboot did not help and no replacement is requested"
	}
	return ""
}

func one(right bool, complaint string) string {
	if right {
		return ""
	}
	return complaint
}
