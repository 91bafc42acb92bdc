package doctor

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// publicationFindings returns the findings about the node's ResourceSlices.
func (n *nodeState) publicationFindings() []Finding {
	found := n.unpublishedFindings()
	for _, r := range n.readings {
		if r.Refused != nil {
			found = append(found, Finding{
				Severity: gpu.Critical.String(), Reason: ReasonPoolRefused, Message: fmt.Sprintf("%v; none of its devices can be allocated", r.Refused),
				NextStep: "no agent publishes such a pool: find out who writes ResourceSlices with the identity of this node's agent, then delete the pool's ResourceSlices",
			})
			continue
		}
		older := slices.ContainsFunc(n.slices, func(s resourceapi.ResourceSlice) bool {
			return s.Spec.Driver == r.Driver && s.Spec.Pool.Name == r.Pool && s.Spec.Pool.Generation < r.Generation
		})
		if !r.Complete {
			message := fmt.Sprintf("pool %s: ResourceSlices are missing, so none of its devices can be allocated", r.Pool)
			if older {
				message += "; ResourceSlices of two generations exist"
			}
			found = append(found, Finding{
				Severity: gpu.Critical.String(), Reason: ReasonResourceSlicesIncomplete, Message: message,
				NextStep: "this is normal for a moment while an agent publishes; if it persists, check the agent: " + n.agentLogsCommand(),
			})
		}
		if len(r.Invalid) > 0 {
			found = append(found, Finding{
				Severity: gpu.Warning.String(), Reason: ReasonInvalidDevices, NextStep: "check whether another driver publishes under the name " + r.Driver,
				Message: fmt.Sprintf("pool %s: %s cannot be decoded and were skipped; the first is %s: %v", r.Pool, quantity(len(r.Invalid), "device"), r.Invalid[0].Name, r.Invalid[0].Err),
			})
		}
	}
	return found
}

// maintenancePrefix begins the names of the installer's own DeviceTaintRules.
const maintenancePrefix = "tessera-maintenance-"

// taintFindings returns the taints of the GPU that Tessera did not set.
func taintFindings(g gpus.GPU) []Finding {
	var found []Finding
	for _, t := range g.Taints {
		if gpus.IsForeignTaint(g, t) {
			found = append(found, forGPU(g, Finding{
				Severity: gpu.Warning.String(), Reason: ReasonTainted, Since: t.Since,
				Message: "tainted " + taintText(t.Key, t.Value, t.Effect), NextStep: "Tessera did not set this taint; remove it when it is no longer needed",
			}))
		}
	}
	return found
}

// taintRuleFindings returns the DeviceTaintRules that select devices of the node and are not Tessera's: those of maintenances, and the one that reserves
// the devices for tessera-scheduler.
func (n *nodeState) taintRuleFindings() []Finding {
	var found []Finding
	for _, rule := range n.rules {
		t := rule.Spec.Taint
		own := strings.HasPrefix(rule.Name, maintenancePrefix) || t.Key == v1alpha1.TaintScheduler
		if own || !n.selectsDevice(rule.Spec.DeviceSelector) {
			continue
		}
		found = append(found, Finding{
			Severity: gpu.Warning.String(), Reason: ReasonTainted, Since: t.TimeAdded,
			Message:  fmt.Sprintf("DeviceTaintRule %s taints devices of the node: %s", rule.Name, taintText(t.Key, t.Value, string(t.Effect))),
			NextStep: "kubectl describe devicetaintrule " + rule.Name + "; delete the rule when it is no longer needed",
		})
	}
	return found
}

// selectsDevice reports whether a rule's selector matches a device of the node. A rule without a selector matches none.
func (n *nodeState) selectsDevice(s *resourceapi.DeviceTaintSelector) bool {
	if s == nil {
		return false
	}
	for _, r := range n.readings {
		if s.Driver != nil && *s.Driver != r.Driver || s.Pool != nil && *s.Pool != r.Pool {
			continue
		}
		if s.Device == nil {
			return true
		}
		if _, _, err := r.Find(*s.Device); err == nil {
			return true
		}
	}
	return false
}

// taintText returns the taint as kubectl prints taints: key=value:effect.
func taintText(key, value, effect string) string {
	if value != "" {
		key += "=" + value
	}
	return key + ":" + effect
}
