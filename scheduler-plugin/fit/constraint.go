package fit

import "slices"

// allowsDevice reports whether the constraints that bind the class let it have the device at all: it has the
// attributes, and the values that are fixed.
func (c *search) allowsDevice(class, device int) bool {
	for _, i := range c.groups[class].constraints {
		constraint := &c.requirements.Constraints[i]
		value := constraint.Values[device]
		if value == 0 || !constraint.Distinct && c.values[i] != 0 && c.values[i] != value {
			return false
		}
	}
	return true
}

// isBinding reports whether the constraint has a member among the classes.
func (c *search) isBinding(constraint int) bool {
	return slices.ContainsFunc(c.groups, func(class requestGroup) bool { return slices.Contains(class.constraints, constraint) })
}

// possibleValues returns the values of the constraint that its members could have, ascending.
func (c *search) possibleValues(constraint int) []int32 {
	var values []int32
	for i, class := range c.groups {
		if !slices.Contains(class.constraints, constraint) {
			continue
		}
		for device := range class.alternative.Candidates.all {
			if c.allowsDevice(i, device) {
				values = append(values, c.requirements.Constraints[constraint].Values[device])
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// hasEnoughDevices reports whether every class has as many devices as it needs, free or not. No node has as many as
// cannot be counted: the API allows a claim 32.
func (c *search) hasEnoughDevices() bool {
	for i, class := range c.groups {
		count := 0
		for device := range class.alternative.Candidates.all {
			if !c.allowsDevice(i, device) {
				continue
			}
			count++
			if c.node.Devices[device].Use.Shape.Shared() {
				count += len(class.members) - 1
			}
		}
		if count < class.needed() || class.needed() > maxNeeded {
			return false
		}
	}
	return true
}
