package expect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// describeRequests returns the requests, constraints and parameters of a claim as text, a line each.
func describeRequests(claim *resourceapi.ResourceClaim) []string {
	var lines []string
	for _, request := range claim.Spec.Devices.Requests {
		if exact := request.Exactly; exact != nil {
			text := describeRequest(exact.AllocationMode, exact.Count, exact.DeviceClassName, exact.Selectors) + describeCapacity(exact.Capacity)
			if ptr.Deref(exact.AdminAccess, false) {
				text += ", with admin access"
			}
			lines = append(lines, request.Name+": "+text)
			continue
		}
		var options []string
		for _, sub := range request.FirstAvailable {
			options = append(options, describeRequest(sub.AllocationMode, sub.Count, sub.DeviceClassName, sub.Selectors)+describeCapacity(sub.Capacity))
		}
		lines = append(lines, request.Name+": "+strings.Join(options, ", else "))
	}
	for _, constraint := range claim.Spec.Devices.Constraints {
		if constraint.MatchAttribute != nil {
			lines = append(lines, "all with the same "+string(*constraint.MatchAttribute))
		}
		if constraint.DistinctAttribute != nil {
			lines = append(lines, "each with a different "+string(*constraint.DistinctAttribute))
		}
	}
	for _, config := range claim.Spec.Devices.Config {
		if config.Opaque != nil {
			lines = append(lines, "parameters "+string(config.Opaque.Parameters.Raw))
		}
	}
	return lines
}

// describeCapacity returns the requested amounts of a shared device as a suffix; empty without capacity requests.
func describeCapacity(capacity *resourceapi.CapacityRequirements) string {
	if capacity == nil {
		return ""
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(capacity.Requests)) {
		amount := capacity.Requests[name]
		fmt.Fprintf(&text, ", %s %s", name, amount.String())
	}
	return text.String()
}

// describeRequest returns count, class and selectors of a request or subrequest.
func describeRequest(mode resourceapi.DeviceAllocationMode, count int64, class string, selectors []resourceapi.DeviceSelector) string {
	text := fmt.Sprintf("%d × %s", max(count, 1), class)
	if mode == resourceapi.DeviceAllocationModeAll {
		text = "all " + class
	}
	for i, selector := range selectors {
		joint := " and "
		if i == 0 {
			joint = " where "
		}
		if selector.CEL != nil {
			text += joint + strings.Join(strings.Fields(selector.CEL.Expression), " ")
		}
	}
	return text
}
