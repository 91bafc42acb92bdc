package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// class is the DeviceClass of one MIG profile.
type class struct {
	// name is the DeviceClass's, resource the extended resource's that existing pods request.
	name, resource string
	profile        string
	// models have the profile.
	models []string
}

// Profile names contain characters that names of classes and resources do not allow.
var (
	className    = strings.NewReplacer("+", ".", "-", ".no-")
	resourceName = strings.NewReplacer("+", ".")
)

// profileClasses returns a class for every profile of the models, by name. Two profiles whose classes
// would have one name, or one resource, are an error: the newer class would take precedence without a
// warning.
func profileClasses(models []catalog.Model) ([]class, error) {
	byProfile := map[string]*class{}
	for _, model := range models {
		for _, profile := range model.Profiles {
			c := byProfile[profile.Name]
			if c == nil {
				c = &class{
					name:     "mig-" + className.Replace(profile.Name) + ".tessera.dev",
					resource: "nvidia.com/mig-" + resourceName.Replace(profile.Name),
					profile:  profile.Name,
				}
				byProfile[profile.Name] = c
			}
			c.models = append(c.models, model.Name)
		}
	}
	var classes []class
	taken := map[string]string{}
	for _, c := range byProfile {
		classes = append(classes, *c)
	}
	slices.SortFunc(classes, func(a, b class) int { return cmp.Compare(a.name, b.name) })
	for _, c := range classes {
		for _, name := range []string{c.name, c.resource} {
			if other, ok := taken[name]; ok {
				return nil, fmt.Errorf("profiles %s and %s: both would be %s", other, c.profile, name)
			}
			taken[name] = c.profile
		}
	}
	return classes, nil
}

func renderClasses(classes []class) string {
	var text strings.Builder
	text.WriteString("# Generated from the catalogue of GPU models by e2e/repo/generate; do not edit.\n")
	for i, c := range classes {
		if i > 0 {
			text.WriteString("---\n")
		}
		fmt.Fprintf(&text, "# %s\n", strings.Join(c.models, ", "))
		fmt.Fprintf(&text, "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata:\n  name: %s\nspec:\n  extendedResourceName: %s\n  selectors:\n  - cel:\n", c.name, c.resource)
		fmt.Fprintf(&text, "      expression: device.driver == 'gpu.tessera.dev' && device.attributes['gpu.tessera.dev'].type == 'mig' && device.attributes['gpu.tessera.dev'].profile == '%s'\n", c.profile)
	}
	return text.String()
}
