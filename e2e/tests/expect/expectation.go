package expect

import (
	"errors"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// Annotation is the key under which an object carries its expectation. Pods, Jobs and Deployments have
// one; another object has it when it must be refused.
const Annotation = "tessera.dev/expect"

// Expectation is what must come of a pod, of every pod of a job or a Deployment, or of an object that the
// API server must not take.
type Expectation struct {
	// Phase is what it must come to; Succeeded when nothing is said.
	Phase Phase `json:"phase,omitempty"`
	// Reason is a part of the reason for which a pod stays Pending or an object is Refused.
	Reason string `json:"reason,omitempty"`
	// View is what every container sees that Containers does not name.
	View
	// Containers is what single containers see, by name.
	Containers map[string]View `json:"containers,omitempty"`
	// Devices relates the containers to each other: all see the same devices, or no two see a common one.
	Devices Relation `json:"devices,omitempty"`
	// SameAs names another pod of the manifest whose containers see the same devices.
	SameAs string `json:"sameAs,omitempty"`
	// While names another pod of the manifest that ran when this one did.
	While string `json:"while,omitempty"`
	// Match are attributes in which all devices of a pod agree, as in a claim's matchAttribute.
	Match []string `json:"match,omitempty"`
	// Over is how many devices the pods of a job took turns on.
	Over int `json:"over,omitempty"`
}

// View is what one container must see and print. An expectation that states GPUs or MIG states both: the other one is
// none.
type View struct {
	// GPUs is the number of GPUs that are not in MIG mode, given as a whole or shared.
	GPUs *int `json:"gpus,omitempty"`
	// MIG are the profiles of the MIG devices, each a pattern as of path.Match.
	MIG []string `json:"mig,omitempty"`
	// Watches is the number of GPUs that are watched, whatever their mode; only for an administrator's
	// container.
	Watches *int `json:"watches,omitempty"`
	// Memory is the least that each device has.
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Allocates is what CUDA lets the container allocate on its first device, and not 1 MiB more.
	Allocates *resource.Quantity `json:"allocates,omitempty"`
	// Multiprocessors is how many CUDA counts on each device.
	Multiprocessors *int `json:"multiprocessors,omitempty"`
	// TimeSlice is the class that is in effect on the GPU of each device, as the claim's status tells.
	TimeSlice string `json:"timeSlice,omitempty"`
	// Log is a part of the container's log.
	Log string `json:"log,omitempty"`
}

// Phase is what a subject comes to.
type Phase string

// The phases. A Deployment is Running when it is available. Failed, and Accepted in place of Refused, are
// never expected.
const (
	Succeeded Phase = "Succeeded"
	Running   Phase = "Running"
	Pending   Phase = "Pending"
	Refused   Phase = "Refused"
	Failed    Phase = "Failed"
	Accepted  Phase = "Accepted"
)

// Relation is how the devices of several containers relate.
type Relation string

// The relations that can be expected; empty expects none.
const (
	Same     Relation = "same"
	Distinct Relation = "distinct"
)

// Parse reads an annotation. An unknown field or a contradiction is an error that names it.
func Parse(text string) (Expectation, error) {
	e := Expectation{Phase: Succeeded}
	if err := yaml.UnmarshalStrict([]byte(text), &e); err != nil {
		return Expectation{}, fmt.Errorf("parse %s: %w", Annotation, err)
	}
	if err := e.validate(); err != nil {
		return Expectation{}, fmt.Errorf("parse %s: %w", Annotation, err)
	}
	return e, nil
}

func (e Expectation) validate() error {
	if err := e.validatePhase(); err != nil {
		return err
	}
	switch e.Devices {
	case "", Same, Distinct:
	default:
		return fmt.Errorf("devices %q: must be %s or %s", e.Devices, Same, Distinct)
	}
	for name, view := range e.Containers {
		if view.empty() {
			return fmt.Errorf("containers.%s: nothing is expected", name)
		}
		if err := view.validate(); err != nil {
			return fmt.Errorf("containers.%s: %w", name, err)
		}
	}
	return e.View.validate()
}

// validatePhase checks that what is expected goes with the phase.
func (e Expectation) validatePhase() error {
	nothing := e.empty() && len(e.Containers) == 0
	switch e.Phase {
	case Succeeded, Running:
		if e.Reason != "" {
			return fmt.Errorf("reason %q: only a Pending pod or a Refused object has one", e.Reason)
		}
		if nothing {
			return errors.New("nothing is expected: state gpus, mig, watches, log or containers")
		}
		return nil
	case Pending, Refused:
		if e.Reason == "" {
			return fmt.Errorf("phase %s: state the reason", e.Phase)
		}
		if !nothing {
			return fmt.Errorf("phase %s: what does not run sees nothing", e.Phase)
		}
		return nil
	case Failed, Accepted:
	}
	return fmt.Errorf("phase %q: must be one of %s, %s, %s, %s", e.Phase, Succeeded, Running, Pending, Refused)
}

func (v View) validate() error {
	for name, count := range map[string]*int{"gpus": v.GPUs, "watches": v.Watches, "multiprocessors": v.Multiprocessors} {
		if count != nil && *count < 0 {
			return fmt.Errorf("%s %d: must not be negative", name, *count)
		}
	}
	for _, profile := range v.MIG {
		if _, err := path.Match(profile, ""); err != nil || profile == "" {
			return fmt.Errorf("mig %q: not a profile or a pattern of one", profile)
		}
	}
	return nil
}

// counts reports whether the view says how many devices there are.
func (v View) counts() bool { return v.GPUs != nil || len(v.MIG) > 0 }

// uses reports whether the view says how much of the devices CUDA gives.
func (v View) uses() bool { return v.Allocates != nil || v.Multiprocessors != nil }

// sees reports whether the view says what NVML shows of the devices.
func (v View) sees() bool { return v.counts() || v.Watches != nil || v.Memory != nil }

func (v View) empty() bool {
	return !v.sees() && !v.uses() && v.TimeSlice == "" && v.Log == ""
}

// of returns what the named container must see.
func (e Expectation) of(container string) View {
	if view, ok := e.Containers[container]; ok {
		return view
	}
	return e.View
}
