package gpunode

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Closure is why GPUs are out of service; the zero value is that they are in service. It is what the file of a Gate holds.
type Closure struct {
	// ID, Operation and Reason are those of the maintenance of all GPUs; empty without one.
	ID        string `json:"id"`
	Operation string `json:"operation"`
	Reason    string `json:"reason"`
	// Validating lets the installer's validations through.
	Validating bool `json:"validating"`
	// Holds are the GPUs that are held for a remedy, by name of the GPU.
	Holds []Hold `json:"holds,omitempty"`
}

// Hold takes a GPU out of service for a remedy.
type Hold struct {
	// ID, GPU and Reason are those of the remedy.
	ID     string `json:"id"`
	GPU    string `json:"gpu"`
	Reason string `json:"reason"`
	// GPUs are those that are reset together, by name, the GPU itself among them: all of them are held.
	GPUs []string `json:"gpus"`
	// Step is what the remedy asks for.
	Step v1alpha1.RemedyOrder `json:"step"`
}

// remedy is the operation of users' refusals.
const remedy = "remedy"

// closureOf returns what the GPUNode asks for. A node without one is in service. The group of a GPU are those that are reset along with it,
// and those that were when the word before was said: links that fail meanwhile make no GPU free of a reset that is on its way.
func closureOf(node *v1alpha1.GPUNode, group func(string) []string, before Closure) Closure {
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
	for _, r := range node.Spec.Remedies {
		gpus := append(slices.Clone(group(r.GPU)), r.GPU)
		for _, h := range before.Holds {
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

// Held returns why GPUs are out of service for a remedy, by name; nil when none is.
func (c Closure) Held() map[string]string {
	var held map[string]string
	for _, h := range c.Holds {
		for _, name := range h.GPUs {
			if held == nil {
				held = map[string]string{}
			}
			// A GPU that is itself remedied says so, and not that it goes along with another.
			if _, known := held[name]; !known || name == h.GPU {
				held[name] = h.Reason
			}
		}
	}
	return held
}

func (c Closure) equal(other Closure) bool { return reflect.DeepEqual(c, other) }

// validation begins the names of the installer's own claims.
const validation = "tessera-validation-"

// refusal returns why the claim on the GPUs may not be prepared, nil when it may. Names alone would not do: the namespace is one in which
// users make nothing.
func (c Closure) refusal(claim prepare.Ref, gpus []string, namespace string) error {
	validates := namespace != "" && claim.Namespace == namespace && strings.HasPrefix(claim.Name, validation)
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

// same reports whether whoever passed under the other hold also passes under this one, so that nobody needs to be waited for.
func (h Hold) same(other Hold) bool {
	if other.Step == v1alpha1.OrderValidate && h.Step != v1alpha1.OrderValidate {
		return false
	}
	h.Step, h.Reason, other.Step, other.Reason = "", "", "", ""
	return reflect.DeepEqual(h, other)
}
