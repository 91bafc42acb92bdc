package fit

import "slices"

// allowsDevice reports whether the constraints of the group permit the device: it has the attributes, with the fixed
// values.
func (c *search) allowsDevice(group, device int) bool {
	for _, i := range c.groups[group].constraints {
		constraint := &c.requirements.Constraints[i]
		value := constraint.Values[device]
		if value == 0 || !constraint.Distinct && c.values[i] != 0 && c.values[i] != value {
			return false
		}
	}
	return true
}

// isBinding reports whether the constraint has a member among the groups.
func (c *search) isBinding(constraint int) bool {
	return slices.ContainsFunc(c.groups, func(group requestGroup) bool { return slices.Contains(group.constraints, constraint) })
}

// possibleValues returns the values that members of the constraint could have, ascending.
func (c *search) possibleValues(constraint int) []int32 {
	var values []int32
	for i, group := range c.groups {
		if !slices.Contains(group.constraints, constraint) {
			continue
		}
		for device := range group.alternative.Candidates.all {
			if c.allowsDevice(i, device) {
				values = append(values, c.requirements.Constraints[constraint].Values[device])
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// hasEnoughDevices reports whether every group has as many candidates as it needs, free or not.
func (c *search) hasEnoughDevices() bool {
	for i, group := range c.groups {
		count := 0
		for device := range group.alternative.Candidates.all {
			if !c.allowsDevice(i, device) {
				continue
			}
			count++
			if c.node.Devices[device].Use.Shape.Shared() {
				count += len(group.members) - 1
			}
		}
		if count < group.needed() || group.needed() > maxNeeded {
			return false
		}
	}
	return true
}
