package v1alpha1

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDriverName is the limit of the resource API for the name of a driver.
const maxDriverName = 63

// profileName matches the name of a MIG profile as in the driver: 1g.10gb, 1g.10gb+me, 1g.24gb+me.all, 1g.24gb-me.
var profileName = regexp.MustCompile(`^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)*)?$`)

// consumableShares matches the values of the field.
var consumableShares = regexp.MustCompile(`^(|memory|unlimited|1000|[1-9][0-9]{0,2})$`)

// validate returns an error for every invalid field. The spec must be complete.
func (c NodeConfigSpec) validate() field.ErrorList {
	var errs field.ErrorList
	if len(c.Shapes) == 0 {
		errs = append(errs, field.Required(field.NewPath("shapes"), fmt.Sprintf("must name at least one of %v", shapes())))
	}
	errs = append(errs, each(field.NewPath("shapes"), c.Shapes, Shape.validate)...)
	if c.Sandbox() && len(c.Shapes) > 1 {
		errs = append(errs, field.Invalid(field.NewPath("shapes"), c.Shapes, "vfio excludes all other shapes: GPUs are either bound to the NVIDIA driver or passed to virtual machines"))
	}
	if c.Shares < 1 || c.Shares > MaxShares {
		errs = append(errs, field.Invalid(field.NewPath("shares"), c.Shares, validation.InclusiveRangeError(1, MaxShares)))
	}
	if !consumableShares.MatchString(c.ConsumableShares) {
		errs = append(errs, field.Invalid(field.NewPath("consumableShares"), c.ConsumableShares, fmt.Sprintf("must be %s, %s, or a number from 1 to %d, as a text", ConsumableMemory, ConsumableUnlimited, MaxShares)))
	}
	errs = append(errs, each(field.NewPath("profiles"), c.Profiles, validateProfile)...)
	errs = append(errs, validateDriverName(field.NewPath("driverName"), c.DriverName)...)
	errs = append(errs, c.Attributes.validate(field.NewPath("attributes"))...)
	errs = append(errs, c.Health.validate(field.NewPath("health"))...)
	return append(errs, c.Roots.validate(field.NewPath("roots"))...)
}

// each validates the elements of a list whose elements must be unique.
func each[T comparable](at *field.Path, list []T, validate func(T, *field.Path) *field.Error) field.ErrorList {
	var errs field.ErrorList
	seen := map[T]bool{}
	for i, element := range list {
		if err := validate(element, at.Index(i)); err != nil {
			errs = append(errs, err)
		}
		if seen[element] {
			errs = append(errs, field.Duplicate(at.Index(i), element))
		}
		seen[element] = true
	}
	return errs
}

func (s Shape) validate(at *field.Path) *field.Error {
	known := append(shapes(), ShapeVFIO)
	if slices.Contains(known, s) {
		return nil
	}
	return field.NotSupported(at, s, known)
}

func validateProfile(name string, at *field.Path) *field.Error {
	if profileName.MatchString(name) {
		return nil
	}
	return field.Invalid(at, name, "must be the name of a MIG profile, such as 1g.10gb or 1g.10gb+me")
}

func validateDriverName(at *field.Path, name string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(at, name, problem))
	}
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(at, name, maxDriverName))
	}
	return errs
}

func (a AttributeSet) validate(at *field.Path) field.ErrorList {
	switch a {
	case Compact, Full:
		return nil
	}
	return field.ErrorList{field.NotSupported(at, a, []AttributeSet{Compact, Full})}
}

func (r Roots) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, root := range []struct {
		name, path string
		optional   bool
	}{
		{"host", r.Host, false}, {"proc", r.Proc, false}, {"sys", r.Sys, false}, {"dev", r.Dev, true}, {"driver", r.Driver, true},
	} {
		switch {
		case root.path == "" && root.optional:
		case !path.IsAbs(root.path) || path.Clean(root.path) != root.path:
			errs = append(errs, field.Invalid(at.Child(root.name), root.path, "must be an absolute path without .. and without a slash at the end"))
		}
	}
	return errs
}
