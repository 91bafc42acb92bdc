package fit

import "slices"

// allowed reports whether the constraints that bind the class let it have the device at all: it has the
// attributes, and the values that are fixed.
func (c *search) allowed(class, device int) bool {
	for _, i := range c.classes[class].bound {
		constraint := &c.demand.Constraints[i]
		value := constraint.Values[device]
		if value == 0 || !constraint.Distinct && c.values[i] != 0 && c.values[i] != value {
			return false
		}
	}
	return true
}

// binds reports whether the constraint has a member among the classes.
func (c *search) binds(constraint int) bool {
	return slices.ContainsFunc(c.classes, func(class class) bool { return slices.Contains(class.bound, constraint) })
}

// choices returns the values of the constraint that its members could have, ascending.
func (c *search) choices(constraint int) []int32 {
	var values []int32
	for i, class := range c.classes {
		if !slices.Contains(class.bound, constraint) {
			continue
		}
		for device := range class.alternative.Candidates.all {
			if c.allowed(i, device) {
				values = append(values, c.demand.Constraints[constraint].Values[device])
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// enough reports whether every class has as many devices as it needs, free or not. No node has as many as
// cannot be counted: the API allows a claim 32.
func (c *search) enough() bool {
	for i, class := range c.classes {
		count := 0
		for device := range class.alternative.Candidates.all {
			if !c.allowed(i, device) {
				continue
			}
			count++
			if c.node.Devices[device].Use.Shape.Shared() {
				count += len(class.members) - 1
			}
		}
		if count < class.need() || class.need() > mostNeeded {
			return false
		}
	}
	return true
}
