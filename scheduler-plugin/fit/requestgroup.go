package fit

import "slices"

// class is one or more requests that a search need not tell apart, each by the alternative that is tried.
type class struct {
	// members are the positions of the requests, each the number of devices that one of them needs. There
	// is more than one member only when each needs one device.
	members []int
	each    int
	// alternative says what is asked for, bound are the positions of the constraints that bind it.
	alternative *Alternative
	bound       []int
}

// need returns how many devices all members need.
func (c *class) need() int { return len(c.members) * c.each }

// mostNeeded bounds what a class needs.
const mostNeeded = 255

// classes returns the classes of the first requests of the demand with these alternatives.
func classes(d *Demand, alternatives []int) []class {
	var all []class
	for r, position := range alternatives {
		a := &d.Requests[r].Alternatives[position]
		c := class{members: []int{r}, each: a.Count, alternative: a, bound: bound(d, r, position)}
		i := slices.IndexFunc(all, func(other class) bool { return other.joins(c) })
		if i < 0 {
			all = append(all, c)
			continue
		}
		all[i].members = append(all[i].members, r)
	}
	return all
}

// joins reports whether the members of the other class ask for the same, one device each.
func (c *class) joins(other class) bool {
	return c.each == 1 && other.each == 1 && len(c.members) < mostNeeded && slices.Equal(c.bound, other.bound) &&
		slices.Equal(c.alternative.Candidates, other.alternative.Candidates) &&
		slices.Equal(c.alternative.Shares, other.alternative.Shares)
}

// bound returns the positions of the constraints that have the request's alternative as a member.
func bound(d *Demand, request, alternative int) []int {
	var all []int
	for i, c := range d.Constraints {
		if slices.ContainsFunc(c.Members, func(m Member) bool {
			return m.Request == request && (m.Alternative == alternative || m.Alternative < 0)
		}) {
			all = append(all, i)
		}
	}
	return all
}
