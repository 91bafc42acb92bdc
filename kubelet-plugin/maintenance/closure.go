package maintenance

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Closure is which GPUs are out of service and why; the zero value is that all are in service. It is the content of the Gate's file.
type Closure struct {
	// ID, Operation and Reason are those of a maintenance of all GPUs; empty without one.
	ID        string `json:"id"`
	Operation string `json:"operation"`
	Reason    string `json:"reason"`
	// Validating admits the installer's validations.
	Validating bool `json:"validating"`
	// Taint is the value of the taint of all devices; empty without one.
	Taint string `json:"taint,omitempty"`
	// Holds are the GPUs that are held for a remedy, by name of the GPU.
	Holds []Hold `json:"holds,omitempty"`
}

// Hold takes a GPU out of service for a remedy.
type Hold struct {
	// ID, GPU and Reason are those of the remedy.
	ID     string `json:"id"`
	GPU    string `json:"gpu"`
	Reason string `json:"reason"`
	// GPUs are those that are reset together, by name, including GPU itself: all of them are held.
	GPUs []string `json:"gpus"`
	// Step is what the remedy orders.
	Step v1alpha1.RemediationOrder `json:"step"`
}

// remedy is the operation in refusals because of a hold.
const remedy = "remedy"

// desiredClosure returns the closure that the GPUNode orders; without a GPUNode, all GPUs are in service. A hold contains the GPUs that
// are reset along with its GPU now, and those of the same hold in the previous closure: when NVLinks fail during a hold, the group must
// not shrink, because the reset may already be running.
func desiredClosure(node *v1alpha1.GPUNode, group func(string) []string, previous Closure) Closure {
	var c Closure
	if node == nil {
		return c
	}
	if m := node.Spec.Maintenance; m != nil {
		c = Closure{
			ID: m.ID, Operation: string(m.Operation), Reason: m.Reason,
			Validating: node.Status.Step == v1alpha1.StepValidate || node.Status.Phase == v1alpha1.PhaseValidating,
		}
	}
	c.Taint = string(node.Spec.DeviceTaint)
	for _, r := range node.Spec.Remediations {
		gpus := append(slices.Clone(group(r.GPU)), r.GPU)
		for _, h := range previous.Holds {
			if h.ID == r.ID && h.GPU == r.GPU {
				gpus = append(gpus, h.GPUs...)
			}
		}
		slices.Sort(gpus)
		gpus = slices.Compact(gpus)
		c.Holds = append(c.Holds, Hold{ID: r.ID, GPU: r.GPU, Reason: r.Reason, GPUs: gpus, Step: r.Step})
	}
	slices.SortFunc(c.Holds, func(a, b Hold) int { return strings.Compare(a.GPU, b.GPU) })
	return c
}

// Held returns the reasons of the GPUs that are held for a remedy, by name; nil when none is.
func (c Closure) Held() map[string]string {
	var held map[string]string
	for _, h := range c.Holds {
		for _, name := range h.GPUs {
			if held == nil {
				held = map[string]string{}
			}
			// The reason of a GPU's own remedy takes precedence over that of a remedy whose group it is in.
			if _, found := held[name]; !found || name == h.GPU {
				held[name] = h.Reason
			}
		}
	}
	return held
}

func (c Closure) equal(other Closure) bool { return reflect.DeepEqual(c, other) }

// validationPrefix begins the names of the claims with which the installer validates a node.
const validationPrefix = "tessera-validation-"

// refusal returns why the claim on the GPUs must not be prepared, nil when it may be. A validation is recognized by its name and its
// namespace, which must be the agent's own: users cannot create claims there.
func (c Closure) refusal(claim prepare.Ref, gpus []string, namespace string) error {
	validates := namespace != "" && claim.Namespace == namespace && strings.HasPrefix(claim.Name, validationPrefix)
	if c.ID != "" && (!c.Validating || !validates) {
		return &prepare.OutOfService{Operation: c.Operation, Reason: c.Reason}
	}
	for _, h := range c.Holds {
		if h.Step == v1alpha1.OrderValidate && validates {
			continue
		}
		i := slices.IndexFunc(gpus, func(name string) bool { return slices.Contains(h.GPUs, name) })
		if i >= 0 {
			return &prepare.OutOfService{GPU: gpus[i], Operation: remedy, Reason: h.Reason}
		}
	}
	return nil
}

// admitsAll reports whether the hold admits every call that the other hold admitted, so that calls of that time need not be waited for.
func (h Hold) admitsAll(other Hold) bool {
	if other.Step == v1alpha1.OrderValidate && h.Step != v1alpha1.OrderValidate {
		return false
	}
	h.Step, h.Reason, other.Step, other.Reason = "", "", "", ""
	return reflect.DeepEqual(h, other)
}
