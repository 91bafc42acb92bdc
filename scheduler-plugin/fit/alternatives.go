package fit

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// undecided stands for a request whose alternative is not chosen yet: a search ignores the request.
const undecided = -1

// combination searches the first combination of alternatives that can be served, in the order of the API: the
// alternative of the first request changes last.
//
// The number of combinations grows exponentially with the number of requests. Four rules, which do not change the
// result, exclude most of them:
//
//  1. An alternative that the node cannot serve alone is never taken. A request without any other alternative ends the search.
//  2. An alternative is never taken if an earlier one of its request is easier to serve (isEasier).
//  3. Requests with one remaining alternative are decided first, and a combination is extended only if all decided
//     requests can be served together.
//  4. Decided requests are interchangeable if they require the same (classify). A combination of decided requests
//     that could not be completed is not tried again in another order (failed).
type combination struct {
	*nodeView
	requirements *Requirements
	// remaining are, by request, the positions of the alternatives after rules 1 and 2.
	remaining [][]int
	// chosen is, by request, the position of the chosen alternative, or undecided.
	chosen []int
	// classes is the class of every alternative, by request.
	classes [][]int
	failed  map[string]bool
}

// chooseSeveral returns the best devices for all requests.
func (s *nodeView) chooseSeveral(req *Requirements) (Choice, bool) {
	c := &combination{nodeView: s, requirements: req, chosen: make([]int, len(req.Requests)), failed: map[string]bool{}}
	if !hasAlternatives(req) {
		return choiceOf(s.planFor(req, c.chosen))
	}
	for i := range c.chosen {
		c.chosen[i] = undecided
	}
	if !c.excludeAlternatives() {
		return Choice{}, false
	}
	c.classify()
	for i, remaining := range c.remaining {
		if len(remaining) == 1 {
			c.chosen[i] = remaining[0]
		}
	}
	return choiceOf(c.extend())
}

func choiceOf(p *plannedChoice) (Choice, bool) {
	if p == nil {
		return Choice{}, false
	}
	return Choice{Picks: p.picks, Score: p.score}, true
}

// hasAlternatives reports whether a request has more than one alternative.
func hasAlternatives(req *Requirements) bool {
	return slices.ContainsFunc(req.Requests, func(r Request) bool { return len(r.Alternatives) > 1 })
}

// excludeAlternatives applies rules 1 and 2. It returns false if a request has no alternative left.
func (c *combination) excludeAlternatives() bool {
	c.remaining = make([][]int, len(c.chosen))
	for request := range c.chosen {
		for i := range c.requirements.Requests[request].Alternatives {
			easier := func(other int) bool { return isEasier(c.requirements, request, other, i) }
			if slices.ContainsFunc(c.remaining[request], easier) {
				continue
			}
			c.chosen[request] = i
			if c.canServe() {
				c.remaining[request] = append(c.remaining[request], i)
			}
			c.chosen[request] = undecided
			if c.budget.Exceeded() {
				return false
			}
		}
		if len(c.remaining[request]) == 0 {
			return false
		}
	}
	return true
}

// isEasier reports whether the first alternative of the request can be served whenever the second one can: it needs no
// more devices, of candidates that include those of the second one, with the same shares and constraints.
func isEasier(req *Requirements, request, first, second int) bool {
	a, b := &req.Requests[request].Alternatives[first], &req.Requests[request].Alternatives[second]
	if a.Count > b.Count || !slices.Equal(constraintsOf(req, request, first), constraintsOf(req, request, second)) {
		return false
	}
	for device := range b.Candidates.all {
		if !a.Candidates.Has(device) || a.shareOf(device) != b.shareOf(device) {
			return false
		}
	}
	return true
}

// classify numbers the alternatives so that two have one number if they require the same.
func (c *combination) classify() {
	numbers := map[string]int{}
	c.classes = make([][]int, len(c.remaining))
	for request, remaining := range c.remaining {
		c.classes[request] = make([]int, len(c.requirements.Requests[request].Alternatives))
		for _, i := range remaining {
			key := c.contentOf(request, i)
			if _, ok := numbers[key]; !ok {
				numbers[key] = len(numbers)
			}
			c.classes[request][i] = numbers[key]
		}
	}
}

// contentOf is equal for alternatives that require the same.
func (c *combination) contentOf(request, alternative int) string {
	a := &c.requirements.Requests[request].Alternatives[alternative]
	content := fmt.Append(nil, a.Count, a.Candidates, constraintsOf(c.requirements, request, alternative))
	for device := range a.Candidates.all {
		if share := a.shareOf(device); share != (gpu.Share{}) {
			content = fmt.Append(content, device, share)
		}
	}
	return string(content)
}

// canServe reports whether the decided requests can be served together, however well.
func (c *combination) canServe() bool {
	s := newSearch(c.nodeView, c.requirements, c.chosen)
	s.anyResult = true
	return s.run(s.planFixedValues) != nil
}

// extend returns the best result for the first combination that extends the chosen alternatives, nil if there is none.
func (c *combination) extend() *plannedChoice {
	key := c.key()
	if c.failed[key] {
		return nil
	}
	next := slices.Index(c.chosen, undecided)
	if next < 0 {
		return c.planFor(c.requirements, c.chosen)
	}
	if !c.canServe() {
		c.failed[key] = true
		return nil
	}
	for _, i := range c.remaining[next] {
		c.chosen[next] = i
		if found := c.extend(); found != nil {
			return found
		}
	}
	c.chosen[next] = undecided
	c.failed[key] = true
	return nil
}

// key is equal for sets of decided requests that require the same. Requests are decided in one order, so that their
// number determines which ones are undecided.
func (c *combination) key() string {
	var classes []int
	for request, i := range c.chosen {
		if i != undecided {
			classes = append(classes, c.classes[request][i])
		}
	}
	slices.Sort(classes)
	var key []byte
	for _, class := range classes {
		key = binary.AppendUvarint(key, uint64(class))
	}
	return string(key)
}
