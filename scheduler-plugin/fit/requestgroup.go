package fit

import "slices"

// requestGroup is one or more equal requests, so that a search need not distinguish them.
type requestGroup struct {
	// members are the positions of the requests, each the number of devices that one of them needs. There
	// is more than one member only when each needs one device.
	members    []int
	perRequest int
	// alternative is the requested alternative, bound are the positions of the constraints that apply to it.
	alternative *Alternative
	constraints []int
}

// needed returns the number of devices that all members need.
func (c *requestGroup) needed() int { return len(c.members) * c.perRequest }

// maxNeeded is the largest number of devices that a group can need: servedCounts has one byte.
const maxNeeded = 255

// groupRequests returns the groups of the requests with these alternatives, without undecided ones.
func groupRequests(req *Requirements, alternatives []int) []requestGroup {
	var all []requestGroup
	for r, position := range alternatives {
		if position == undecided {
			continue
		}
		a := &req.Requests[r].Alternatives[position]
		c := requestGroup{members: []int{r}, perRequest: a.Count, alternative: a, constraints: constraintsOf(req, r, position)}
		i := slices.IndexFunc(all, func(other requestGroup) bool { return other.canMerge(c) })
		if i < 0 {
			all = append(all, c)
			continue
		}
		all[i].members = append(all[i].members, r)
	}
	return all
}

// canMerge reports whether the members of both groups have equal requests for one device each.
func (c *requestGroup) canMerge(other requestGroup) bool {
	return c.perRequest == 1 && other.perRequest == 1 && len(c.members) < maxNeeded && slices.Equal(c.constraints, other.constraints) &&
		slices.Equal(c.alternative.Candidates, other.alternative.Candidates) &&
		slices.Equal(c.alternative.Shares, other.alternative.Shares)
}

// constraintsOf returns the positions of the constraints that have the request's alternative as a member.
func constraintsOf(req *Requirements, request, alternative int) []int {
	var all []int
	for i, c := range req.Constraints {
		if slices.ContainsFunc(c.Members, func(m Member) bool {
			return m.Request == request && (m.Alternative == alternative || m.Alternative < 0)
		}) {
			all = append(all, i)
		}
	}
	return all
}
