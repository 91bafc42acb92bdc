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

// request is a request of a claim or one of its subrequests.
type request struct {
	// name has the form of allocation results, "request" or "request/subrequest"; at is its path in the object.
	name, at string
	class    string
}

// checkClass validates the parameters of a DeviceClass.
func (c checker) checkClass(class *resourceapi.DeviceClass) []Problem {
	var configs []resourceapi.DeviceConfiguration
	for _, entry := range class.Spec.Config {
		configs = append(configs, entry.DeviceConfiguration)
	}
	if problems := c.checkEntries("spec.config", resourceapi.AllocationConfigSourceClass, configs); len(problems) > 0 {
		return problems
	}
	const anyRequest = "any"
	return c.checkEffective(request{name: anyRequest, at: "spec.config", class: class.Name}, classConfigs(*class, anyRequest))
}

// checkDevices validates the parameters of a claim's requests; at is the path of the requests.
func (c checker) checkDevices(at string, claim resourceapi.DeviceClaim) []Problem {
	var configs []resourceapi.DeviceConfiguration
	for _, entry := range claim.Config {
		configs = append(configs, entry.DeviceConfiguration)
	}
	if problems := c.checkEntries(at+".config", resourceapi.AllocationConfigSourceClaim, configs); len(problems) > 0 {
		return problems
	}
	var problems []Problem
	for _, r := range allRequests(at, claim) {
		applied := classConfigs(c.classes[r.class], r.name)
		for _, entry := range claim.Config {
			applied = append(applied, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClaim, Requests: entry.Requests, DeviceConfiguration: entry.DeviceConfiguration,
			})
		}
		problems = append(problems, c.checkEffective(r, applied)...)
	}
	return problems
}

// classConfigs returns the configurations of the class in the form of an allocation of the request.
func classConfigs(class resourceapi.DeviceClass, request string) []resourceapi.DeviceAllocationConfiguration {
	var configs []resourceapi.DeviceAllocationConfiguration
	for _, entry := range class.Spec.Config {
		configs = append(configs, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClass, Requests: []string{request}, DeviceConfiguration: entry.DeviceConfiguration,
		})
	}
	return configs
}

// allRequests returns the requests and subrequests of the claim.
func allRequests(at string, claim resourceapi.DeviceClaim) []request {
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

// checkEntries validates each configuration of a DeviceClass or a claim, the source, on its own.
func (c checker) checkEntries(at string, source resourceapi.AllocationConfigSource, configs []resourceapi.DeviceConfiguration) []Problem {
	var problems []Problem
	for i, config := range configs {
		if config.Opaque == nil || !slices.Contains(c.drivers, config.Opaque.Driver) {
			continue
		}
		_, err := params.Decode(config.Opaque.Driver, source, config.Opaque.Parameters.Raw)
		if err == nil {
			continue
		}
		here := fmt.Sprintf("%s[%d].opaque.parameters", at, i)
		found := fieldErrors(err)
		for _, field := range found {
			problems = append(problems, Problem{Field: joinPath(here, field.Field), Message: field.ErrorBody()})
		}
		if len(found) == 0 {
			problems = append(problems, Problem{Field: here, Message: err.Error()})
		}
	}
	return problems
}

// checkEffective validates the merged parameters with which a device of the request would be prepared, if the class determines its shape.
func (c checker) checkEffective(r request, configs []resourceapi.DeviceAllocationConfiguration) []Problem {
	selected, ok := c.selected(r.class)
	if !ok {
		return nil
	}
	for _, driver := range c.drivers {
		if selected.driver != "" && selected.driver != driver {
			continue
		}
		if err := params.Check(configs, driver, r.name, selected.shape); err != nil {
			return []Problem{{Field: r.at, Message: err.Error()}}
		}
	}
	return nil
}

// fieldErrors returns the field errors of an aggregate; nil when it contains any other error.
func fieldErrors(err error) field.ErrorList {
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

// joinPath joins the path of an object and that of a field in it.
func joinPath(at, inner string) string {
	if at == "" || inner == "" {
		return at + inner
	}
	return at + "." + inner
}
