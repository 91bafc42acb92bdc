package expect

import (
	"errors"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// Annotation is the key under which a Pod or a Job carries its expectation.
const Annotation = "tessera.dev/expect"

// Expectation is what must come of a pod, or of every pod of a job.
type Expectation struct {
	// Phase is what it must come to; Succeeded when nothing is said.
	Phase Phase `json:"phase,omitempty"`
	// Reason is a part of the scheduler's message; only for a pod that stays Pending.
	Reason string `json:"reason,omitempty"`
	// View is what every container sees that Containers does not name.
	View
	// Containers is what single containers see, by name.
	Containers map[string]View `json:"containers,omitempty"`
	// Devices relates the containers to each other: all see the same devices, or no two see a common one.
	Devices Relation `json:"devices,omitempty"`
	// SameAs names another pod of the manifest whose containers see the same devices.
	SameAs string `json:"sameAs,omitempty"`
	// Match are attributes in which all devices of a pod agree, as in a claim's matchAttribute.
	Match []string `json:"match,omitempty"`
	// Over is how many devices the pods of a job took turns on.
	Over int `json:"over,omitempty"`
}

// View is what one container must see and say. Whoever states GPUs or MIG states both: the other one is
// none.
type View struct {
	// GPUs is the number of whole GPUs.
	GPUs *int `json:"gpus,omitempty"`
	// MIG are the profiles of the MIG devices, each a pattern as of path.Match.
	MIG []string `json:"mig,omitempty"`
	// Memory is the least that each device has.
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Log is a part of the container's log.
	Log string `json:"log,omitempty"`
}

// Phase is what a pod or a job comes to.
type Phase string

// The phases. Failed is never expected.
const (
	Succeeded Phase = "Succeeded"
	Running   Phase = "Running"
	Pending   Phase = "Pending"
	Failed    Phase = "Failed"
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
			return fmt.Errorf("reason %q: only a Pending pod has one", e.Reason)
		}
		if nothing {
			return errors.New("nothing is expected: state gpus, mig, log or containers")
		}
		return nil
	case Pending:
		if e.Reason == "" {
			return errors.New("phase Pending: state the reason")
		}
		if !nothing {
			return errors.New("phase Pending: a pod that does not run sees nothing")
		}
		return nil
	case Failed:
	}
	return fmt.Errorf("phase %q: must be one of %s, %s, %s", e.Phase, Succeeded, Running, Pending)
}

func (v View) validate() error {
	if v.GPUs != nil && *v.GPUs < 0 {
		return fmt.Errorf("gpus %d: must not be negative", *v.GPUs)
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

func (v View) empty() bool { return !v.counts() && v.Memory == nil && v.Log == "" }

// of returns what the named container must see.
func (e Expectation) of(container string) View {
	if view, ok := e.Containers[container]; ok {
		return view
	}
	return e.View
}
