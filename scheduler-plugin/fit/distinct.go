package fit

import (
	"slices"
	"strings"
)

// distinctValues are the values of distinctAttributes that are used: their numbers, ascending. It is a string so that
// it can be part of a map key.
type distinctValues string

// distinctNumbers numbers the values of all distinctAttributes of a search.
type distinctNumbers struct {
	numbers map[constraintValue]rune
	// last is, by number, the position of the last GPU that has a device with the value.
	last []int
}

// constraintValue is a value of a constraint.
type constraintValue struct {
	constraint int
	value      int32
}

// newDistinctNumbers numbers the values of all devices that the groups of the search could take.
func newDistinctNumbers(c *search) distinctNumbers {
	n := distinctNumbers{numbers: map[constraintValue]rune{}}
	for _, group := range c.groups {
		for _, i := range group.constraints {
			if !c.requirements.Constraints[i].Distinct {
				continue
			}
			for device := range group.alternative.Candidates.all {
				n.add(constraintValue{i, c.requirements.Constraints[i].Values[device]}, c.node.Devices[device].GPU)
			}
		}
	}
	return n
}

func (n *distinctNumbers) add(p constraintValue, gpu int) {
	number, ok := n.numbers[p]
	if !ok {
		number = rune(len(n.numbers))
		n.numbers[p] = number
		n.last = append(n.last, gpu)
	}
	n.last[number] = max(n.last[number], gpu)
}

// addDistinct returns the used values after the group takes the device, and false if one of the values is already used.
func (c *search) addDistinct(before distinctValues, group, device int) (distinctValues, bool) {
	after := before
	for _, i := range c.groups[group].constraints {
		constraint := &c.requirements.Constraints[i]
		if !constraint.Distinct {
			continue
		}
		number := c.distinct.numbers[constraintValue{i, constraint.Values[device]}]
		if strings.ContainsRune(string(after), number) {
			return before, false
		}
		after = after.with(number)
	}
	return after, true
}

// with returns the values and the number.
func (s distinctValues) with(number rune) distinctValues {
	numbers := append([]rune(s), number)
	slices.Sort(numbers)
	return distinctValues(numbers)
}

// union returns the values of both, and false if they have one in common.
func (s distinctValues) union(other distinctValues) (distinctValues, bool) {
	for _, number := range other {
		if strings.ContainsRune(string(s), number) {
			return s, false
		}
		s = s.with(number)
	}
	return s, true
}

// usableAfter returns those of the values that a GPU after the position could use. Others cannot conflict any more.
func (n *distinctNumbers) usableAfter(s distinctValues, gpu int) distinctValues {
	var kept []rune
	for _, number := range s {
		if n.last[number] > gpu {
			kept = append(kept, number)
		}
	}
	return distinctValues(kept)
}
