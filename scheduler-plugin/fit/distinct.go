package fit

import (
	"slices"
	"strings"
)

// spent are the values that a distinctAttribute does not allow again: their numbers, ascending.
type spent string

// numbering gives a number to every value of every distinctAttribute.
type numbering struct {
	numbers map[pair]rune
	// last is, by number, the last GPU that has a device with the value.
	last []int
}

// pair is a value of a constraint.
type pair struct {
	constraint int
	value      int32
}

// newNumbering numbers what the classes of the search could spend.
func newNumbering(c *search) numbering {
	n := numbering{numbers: map[pair]rune{}}
	for _, class := range c.classes {
		for _, i := range class.bound {
			if !c.demand.Constraints[i].Distinct {
				continue
			}
			for device := range class.alternative.Candidates.all {
				n.add(pair{i, c.demand.Constraints[i].Values[device]}, c.node.Devices[device].GPU)
			}
		}
	}
	return n
}

func (n *numbering) add(p pair, gpu int) {
	number, ok := n.numbers[p]
	if !ok {
		number = rune(len(n.numbers))
		n.numbers[p] = number
		n.last = append(n.last, gpu)
	}
	n.last[number] = max(n.last[number], gpu)
}

// spend returns the values with those of the device, and false when one of them is spent already.
func (c *search) spend(before spent, class, device int) (spent, bool) {
	after := before
	for _, i := range c.classes[class].bound {
		constraint := &c.demand.Constraints[i]
		if !constraint.Distinct {
			continue
		}
		number := c.distinct.numbers[pair{i, constraint.Values[device]}]
		if strings.ContainsRune(string(after), number) {
			return before, false
		}
		after = after.with(number)
	}
	return after, true
}

func (s spent) with(number rune) spent {
	numbers := append([]rune(s), number)
	slices.Sort(numbers)
	return spent(numbers)
}

// join returns the values of both, and false when they have one in common.
func (s spent) join(other spent) (spent, bool) {
	for _, number := range other {
		if strings.ContainsRune(string(s), number) {
			return s, false
		}
		s = s.with(number)
	}
	return s, true
}

// after returns those of the values that a GPU after this one could spend, too.
func (n *numbering) after(s spent, gpu int) spent {
	var kept []rune
	for _, number := range s {
		if n.last[number] > gpu {
			kept = append(kept, number)
		}
	}
	return spent(kept)
}
