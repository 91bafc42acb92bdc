package check

import (
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tessera-gpu/tessera/api/params"
)

// request is one thing that a claim asks for, or one of its alternatives.
type request struct {
	// name is as in an allocation result, "request" or "request/subrequest"; at is its path.
	name, at string
	class    string
}

// class judges a DeviceClass.
func (c court) class(class *resourceapi.DeviceClass) []Problem {
	var configs []resourceapi.DeviceConfiguration
	for _, entry := range class.Spec.Config {
		configs = append(configs, entry.DeviceConfiguration)
	}
	if problems := c.entries("spec.config", configs); len(problems) > 0 {
		return problems
	}
	const anyRequest = "any"
	return c.effective(request{name: anyRequest, at: "spec.config", class: class.Name}, inherited(*class, anyRequest))
}

// devices judges what a claim asks for at the path.
func (c court) devices(at string, claim resourceapi.DeviceClaim) []Problem {
	var configs []resourceapi.DeviceConfiguration
	for _, entry := range claim.Config {
		configs = append(configs, entry.DeviceConfiguration)
	}
	if problems := c.entries(at+".config", configs); len(problems) > 0 {
		return problems
	}
	var problems []Problem
	for _, r := range requests(at, claim) {
		applied := inherited(c.classes[r.class], r.name)
		for _, entry := range claim.Config {
			applied = append(applied, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClaim, Requests: entry.Requests, DeviceConfiguration: entry.DeviceConfiguration,
			})
		}
		problems = append(problems, c.effective(r, applied)...)
	}
	return problems
}

// inherited returns the configurations of the class as they stand in an allocation of the request.
func inherited(class resourceapi.DeviceClass, request string) []resourceapi.DeviceAllocationConfiguration {
	var configs []resourceapi.DeviceAllocationConfiguration
	for _, entry := range class.Spec.Config {
		configs = append(configs, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClass, Requests: []string{request}, DeviceConfiguration: entry.DeviceConfiguration,
		})
	}
	return configs
}

// requests returns everything that can stand in an allocation of the claim.
func requests(at string, claim resourceapi.DeviceClaim) []request {
	var list []request
	for i, r := range claim.Requests {
		here := fmt.Sprintf("%s.requests[%d]", at, i)
		if r.Exactly != nil {
			list = append(list, request{r.Name, here, r.Exactly.DeviceClassName})
		}
		for j, sub := range r.FirstAvailable {
			list = append(list, request{r.Name + "/" + sub.Name, fmt.Sprintf("%s.firstAvailable[%d]", here, j), sub.DeviceClassName})
		}
	}
	return list
}

// entries judges each configuration by itself.
func (c court) entries(at string, configs []resourceapi.DeviceConfiguration) []Problem {
	var problems []Problem
	for i, config := range configs {
		if config.Opaque == nil || !slices.Contains(c.drivers, config.Opaque.Driver) {
			continue
		}
		_, err := params.Decode(config.Opaque.Driver, config.Opaque.Parameters.Raw)
		if err == nil {
			continue
		}
		here := fmt.Sprintf("%s[%d].opaque.parameters", at, i)
		found := fields(err)
		for _, field := range found {
			problems = append(problems, Problem{Field: path(here, field.Field), Message: field.ErrorBody()})
		}
		if len(found) == 0 {
			problems = append(problems, Problem{Field: here, Message: err.Error()})
		}
	}
	return problems
}

// effective judges what a device of the request would be prepared with, when the class tells its shape.
func (c court) effective(r request, configs []resourceapi.DeviceAllocationConfiguration) []Problem {
	selected, ok := c.selected(r.class)
	if !ok {
		return nil
	}
	for _, driver := range c.drivers {
		if selected.driver != "" && selected.driver != driver {
			continue
		}
		if _, err := params.Resolve(configs, driver, r.name, selected.shape); err != nil {
			return []Problem{{Field: r.at, Message: err.Error()}}
		}
	}
	return nil
}

// fields returns the field errors in an error, none when it is about something else too.
func fields(err error) field.ErrorList {
	var list field.ErrorList
	var several utilerrors.Aggregate
	if !errors.As(err, &several) {
		return nil
	}
	for _, one := range several.Errors() {
		var wrong *field.Error
		if !errors.As(one, &wrong) {
			return nil
		}
		list = append(list, wrong)
	}
	return list
}

// path joins the paths of an object and of something in it.
func path(at, inner string) string {
	if at == "" || inner == "" {
		return at + inner
	}
	return at + "." + inner
}
