package requirements

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// plan is a demand as every node is asked, and what the nodes answered. All demands of one key share it.
type plan struct {
	requests    []request
	constraints []constraint
	// stages are those of the alternatives, of all requests in a row.
	stages [][]*stage
	// columns are what the demand looks at; blind says that it may look at everything.
	columns []column
	blind   bool
	surveys *surveys

	mu      sync.Mutex
	answers map[digest]answer
	// roamed are the slices that were asked last, err what came of it.
	roamed []*resourceapi.ResourceSlice
	err    error
}

// answer is what is asked of nodes that look the same.
type answer struct {
	asked *fit.Demand
	err   error
}

func newPlan(s *sketch, stages [][]*stage, surveys *surveys) *plan {
	p := &plan{requests: s.requests, constraints: s.constraints, stages: stages, surveys: surveys, answers: map[digest]answer{}}
	var all sight
	for _, row := range stages {
		for _, one := range row {
			all = all.and(one.sight)
			p.blind = p.blind || one.blind
		}
	}
	for _, c := range s.constraints {
		domain, id, _ := strings.Cut(string(c.attribute), "/")
		all = all.and(sight{attributes: []read{{domain, id}}})
	}
	p.columns = append(p.columns, column{part: facts})
	for _, r := range all.attributes {
		p.columns = append(p.columns, column{attributeValues, r})
	}
	for _, r := range all.capacities {
		p.columns = append(p.columns, column{capacityValues, r})
	}
	if s.measured() {
		p.columns = append(p.columns, column{part: policies})
	}
	return p
}

// on returns what is asked of the node.
func (p *plan) on(n *index.Node) (*fit.Demand, error) {
	survey := p.surveys.of(n)
	if survey.strange != nil {
		return nil, survey.strange
	}
	look := survey.look(n, p.columns)
	if p.blind {
		// The node is like no other.
		look = sha256.Sum256(fmt.Appendf(look[:], "%d %s", n.Content, n.Name))
	}
	p.mu.Lock()
	known, ok := p.answers[look]
	p.mu.Unlock()
	if ok {
		return known.asked, known.err
	}
	asked, err := p.ask(n, survey.groups[1:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.answers) >= maxAnswers {
		clear(p.answers)
	}
	p.answers[look] = answer{asked, err}
	return asked, err
}

// ask works out what is asked of the node, which has devices of others, too.
func (p *plan) ask(n *index.Node, others []group) (*fit.Demand, error) {
	for _, g := range others {
		if err := p.foreign(g); err != nil {
			return nil, err
		}
	}
	asked := &fit.Demand{Requests: make([]fit.Request, len(p.requests))}
	next := 0
	for i := range p.requests {
		r := &p.requests[i]
		asked.Requests[i] = fit.Request{Name: r.name, Alternatives: make([]fit.Alternative, len(r.alternatives))}
		for j := range r.alternatives {
			a, err := r.alternatives[j].on(n, p.stages[next])
			if err != nil {
				return nil, delegate("request %s: %w", r.name, err)
			}
			asked.Requests[i].Alternatives[j] = a
			next++
		}
	}
	for _, c := range p.constraints {
		bound, err := c.on(n)
		if err != nil {
			return nil, err
		}
		asked.Constraints = append(asked.Constraints, bound)
	}
	return asked, nil
}

// foreign returns an error when the demand could be served by devices that the index does not follow.
// Whether they are free is not looked at.
func (p *plan) foreign(g group) error {
	for _, stages := range p.stages {
		matching, err := filter(stages, g.driver, g.devices)
		if err != nil {
			return delegate("driver %s: %w", g.driver, err)
		}
		if slices.ContainsFunc(matching, func(word uint64) bool { return word != 0 }) {
			return delegate("a device of driver %s matches, too", g.driver)
		}
	}
	return nil
}

// roams returns an error when the demand could be served by devices that are not bound to one node.
func (p *plan) roams(roaming []*resourceapi.ResourceSlice) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.roamed, roaming) {
		return p.err
	}
	p.roamed, p.err = roaming, nil
	for _, slice := range roaming {
		if p.err = p.foreign(groupOf(slice)); p.err != nil {
			break
		}
	}
	return p.err
}

// filter returns the devices that pass all stages.
func filter(stages []*stage, driver string, devices []*resourceapi.Device) (fit.Set, error) {
	set := fit.NewSet(len(devices))
	for i := range devices {
		set.Add(i)
	}
	var err error
	for _, s := range stages {
		if set, err = s.filter(driver, devices, set); err != nil {
			return nil, err
		}
	}
	return set, nil
}
