package doctor

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// publication returns what is wrong with the node's slices.
func (p *patient) publication() []Finding {
	found := p.unserved()
	for _, r := range p.readings {
		older := slices.ContainsFunc(p.slices, func(s resourceapi.ResourceSlice) bool {
			return s.Spec.Driver == r.Driver && s.Spec.Pool.Name == r.Pool && s.Spec.Pool.Generation < r.Generation
		})
		if !r.Complete {
			message := fmt.Sprintf("pool %s: its slices are not all there, so that no claim gets any of its devices", r.Pool)
			if older {
				message += "; slices of two generations stand beside each other"
			}
			found = append(found, Finding{
				Severity: gpu.Critical.String(), Reason: ReasonSlicesIncomplete, Message: message,
				Help: "that lasts a moment while an agent publishes; if it stays, look at the agent: " + p.agentLogs(),
			})
		}
		if len(r.Strange) > 0 {
			found = append(found, Finding{
				Severity: gpu.Warning.String(), Reason: ReasonStrangeDevices, Help: "does another driver publish under the name " + r.Driver + "?",
				Message: fmt.Sprintf("pool %s: %s not in Tessera's form and not looked at; the first, %s: %v", r.Pool, count(len(r.Strange), "device"), r.Strange[0].Name, r.Strange[0].Err),
			})
		}
	}
	return found
}

// maintenancePrefix begins the names of the installer's own DeviceTaintRules.
const maintenancePrefix = "tessera-maintenance-"

// tainted returns what keeps claims off the GPU and is not Tessera's.
func (p *patient) tainted(g gpus.GPU) []Finding {
	const help = "somebody else keeps claims away: if that is over, take the taint away"
	var found []Finding
	for _, t := range g.Taints {
		if gpus.Foreign(g, t) {
			found = append(found, on(g, Finding{
				Severity: gpu.Warning.String(), Reason: ReasonTainted, Since: t.Since, Help: help,
				Message: "tainted " + keyed(t.Key, t.Value, t.Effect),
			}))
		}
	}
	return found
}

// ruled returns the DeviceTaintRules of others that choose devices of the node.
func (p *patient) ruled() []Finding {
	var found []Finding
	for _, rule := range p.rules {
		if strings.HasPrefix(rule.Name, maintenancePrefix) || !p.chosen(rule.Spec.DeviceSelector) {
			continue
		}
		t := rule.Spec.Taint
		found = append(found, Finding{
			Severity: gpu.Warning.String(), Reason: ReasonTainted, Since: t.TimeAdded,
			Message: fmt.Sprintf("DeviceTaintRule %s taints devices of the node %s", rule.Name, keyed(t.Key, t.Value, string(t.Effect))),
			Help:    "kubectl describe devicetaintrule " + rule.Name + "; if it is over, delete it",
		})
	}
	return found
}

// chosen reports whether a rule's selector chooses a device of the node. Without any it chooses nothing.
func (p *patient) chosen(s *resourceapi.DeviceTaintSelector) bool {
	if s == nil {
		return false
	}
	for _, r := range p.readings {
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

func keyed(key, value, effect string) string {
	if value != "" {
		key += "=" + value
	}
	return key + ":" + effect
}
