package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Load returns the arguments of the configuration file, with defaults, validated. A nil object stands for no arguments.
// Unknown keys are rejected.
func Load(object runtime.Object) (*TesseraDynamicResourcesArgs, error) {
	var args TesseraDynamicResourcesArgs
	switch given := object.(type) {
	case nil:
	case *runtime.Unknown:
		if err := decode(given, &args); err != nil {
			return nil, fmt.Errorf("read the arguments: %w", err)
		}
	default:
		return nil, fmt.Errorf("read the arguments: got a %T", object)
	}
	args.setDefaults()
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("check the arguments: %w", err)
	}
	return &args, nil
}

func decode(given *runtime.Unknown, args *TesseraDynamicResourcesArgs) error {
	text := given.Raw
	switch given.ContentType {
	case runtime.ContentTypeJSON, "":
	case runtime.ContentTypeYAML:
		var err error
		if text, err = yaml.YAMLToJSONStrict(text); err != nil {
			return err
		}
	default:
		return fmt.Errorf("content type %s is neither JSON nor YAML", given.ContentType)
	}
	if len(text) == 0 {
		return nil
	}
	strict, err := json.UnmarshalStrict(text, args)
	return errors.Join(append(strict, err)...)
}

func (a *TesseraDynamicResourcesArgs) setDefaults() {
	if len(a.Drivers) == 0 {
		a.Drivers = []string{"gpu.tessera.dev"}
	}
	if a.Candidates == 0 {
		a.Candidates = 64
	}
	if a.Mode == "" {
		a.Mode = Replace
	}
	if a.Preemption == "" {
		a.Preemption = Disabled
	}
	if a.FilterTimeout == nil {
		a.FilterTimeout = &metav1.Duration{Duration: schedulerconfig.DynamicResourcesFilterTimeoutDefault}
	}
	if a.BindingTimeout == nil {
		a.BindingTimeout = &metav1.Duration{Duration: schedulerconfig.DynamicResourcesBindingTimeoutDefault}
	}
}

func (a *TesseraDynamicResourcesArgs) validate() error {
	var all []error
	if slices.Contains(a.Drivers, "") {
		all = append(all, errors.New("drivers: a name is empty"))
	}
	all = append(all, a.Weights.validate())
	if a.Candidates < 1 {
		all = append(all, fmt.Errorf("candidates: %d is less than 1", a.Candidates))
	}
	if a.Mode != Replace && a.Mode != Additional {
		all = append(all, fmt.Errorf("mode: %q is neither %s nor %s", a.Mode, Replace, Additional))
	}
	if a.Preemption != Enabled && a.Preemption != Disabled {
		all = append(all, fmt.Errorf("preemption: %q is neither %s nor %s", a.Preemption, Enabled, Disabled))
	}
	if a.FilterTimeout.Duration < 0 {
		all = append(all, fmt.Errorf("filterTimeout: %s is negative", a.FilterTimeout.Duration))
	}
	if a.BindingTimeout.Duration < time.Second {
		all = append(all, fmt.Errorf("bindingTimeout: %s is less than a second", a.BindingTimeout.Duration))
	}
	return errors.Join(all...)
}

func (w Weights) validate() error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(w.Profiles)) {
		if weight := w.Profiles[name]; math.IsNaN(weight) || math.IsInf(weight, 0) || weight < 0 {
			all = append(all, fmt.Errorf("weights.profiles: %s: %v is not a share", name, weight))
		}
	}
	return errors.Join(all...)
}
