package expect

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// asked describes the requests of a claim for people.
func asked(claim *resourceapi.ResourceClaim) []string {
	var lines []string
	for _, request := range claim.Spec.Devices.Requests {
		if exact := request.Exactly; exact != nil {
			lines = append(lines, request.Name+": "+wish(exact.AllocationMode, exact.Count, exact.DeviceClassName, exact.Selectors))
			continue
		}
		var options []string
		for _, sub := range request.FirstAvailable {
			options = append(options, wish(sub.AllocationMode, sub.Count, sub.DeviceClassName, sub.Selectors))
		}
		lines = append(lines, request.Name+": "+strings.Join(options, ", else "))
	}
	for _, constraint := range claim.Spec.Devices.Constraints {
		if constraint.MatchAttribute != nil {
			lines = append(lines, "all with the same "+string(*constraint.MatchAttribute))
		}
		if constraint.DistinctAttribute != nil {
			lines = append(lines, "each with another "+string(*constraint.DistinctAttribute))
		}
	}
	return lines
}

func wish(mode resourceapi.DeviceAllocationMode, count int64, class string, selectors []resourceapi.DeviceSelector) string {
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
