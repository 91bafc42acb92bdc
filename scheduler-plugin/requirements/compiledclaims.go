package requirements

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// compiledClaims are parsed claims with compiled selectors, and the results of nodes. All requirements with one key
// share them.
type compiledClaims struct {
	requests    []request
	constraints []constraint
	// selectors are those of the alternatives, of all requests in a row.
	selectors [][]*selector
	// reads is what the selectors read; uncacheable means that they may read any field. policies means that the result also
	// depends on the request policies of capacities.
	reads                 readSet
	uncacheable, policies bool
	// columns are what the result depends on.
	columns []column
	digests *nodeDigestCache

	mu      sync.Mutex
	answers map[digest]nodeAnswer
	// checkedNonLocal are the slices that were checked last, err is the result.
	checkedNonLocal []*resourceapi.ResourceSlice
	err             error
}

// nodeAnswer is the result of nodes with equal digests.
type nodeAnswer struct {
	demands *fit.Requirements
	err     error
}

func newCompiledClaims(s *parsedClaims, selectors [][]*selector, digests *nodeDigestCache) *compiledClaims {
	p := &compiledClaims{
		requests: s.requests, constraints: s.constraints, selectors: selectors, policies: s.requestsCapacity(), digests: digests,
		answers: map[digest]nodeAnswer{},
	}
	for _, row := range selectors {
		for _, one := range row {
			p.reads = p.reads.union(one.reads)
			p.uncacheable = p.uncacheable || one.readsUnknown
		}
	}
	all := p.reads
	for _, c := range s.constraints {
		domain, id, _ := strings.Cut(string(c.attribute), "/")
		all = all.union(readSet{attributes: []readField{{domain, id}}})
	}
	p.columns = append(p.columns, column{part: facts})
	for _, r := range all.attributes {
		p.columns = append(p.columns, column{attributeValues, r})
	}
	for _, r := range all.capacities {
		p.columns = append(p.columns, column{capacityValues, r})
	}
	if p.policies {
		p.columns = append(p.columns, column{part: policies})
	}
	return p
}

// onNode returns what is required of the node.
func (p *compiledClaims) onNode(n *index.Node, b *fit.Budget) (*fit.Requirements, error) {
	nodeDigests := p.digests.forNode(n)
	if nodeDigests.unsupported != nil {
		return nil, nodeDigests.unsupported
	}
	key := nodeDigests.digestOf(n, p.columns)
	if p.uncacheable {
		// The result may depend on anything that the node publishes.
		key = sha256.Sum256(fmt.Appendf(key[:], "%d %s", n.Content, n.Name))
	}
	p.mu.Lock()
	known, ok := p.answers[key]
	p.mu.Unlock()
	if ok {
		return known.demands, known.err
	}
	demands, err := p.evaluateNode(n, nodeDigests.drivers[1:], b)
	if errors.Is(err, fit.ErrTooComplex) {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.answers) >= maxAnswers {
		clear(p.answers)
	}
	p.answers[key] = nodeAnswer{demands, err}
	return demands, err
}

// evaluateNode evaluates the claims on the node. others are the devices of other drivers.
func (p *compiledClaims) evaluateNode(n *index.Node, others []driverDevices, b *fit.Budget) (*fit.Requirements, error) {
	for _, g := range others {
		if err := p.checkForeign(g, b); err != nil {
			return nil, err
		}
	}
	groups, ok := p.groupDevices(n, b)
	if !ok {
		return nil, fit.ErrTooComplex
	}
	demands := &fit.Requirements{Requests: make([]fit.Request, len(p.requests))}
	next := 0
	for i := range p.requests {
		r := &p.requests[i]
		demands.Requests[i] = fit.Request{Name: r.name, Alternatives: make([]fit.Alternative, len(r.alternatives))}
		for j := range r.alternatives {
			a, err := r.alternatives[j].onNode(n, groups, p.selectors[next], b)
			if err != nil {
				return nil, delegatef("request %s: %w", r.name, err)
			}
			demands.Requests[i].Alternatives[j] = a
			next++
		}
	}
	for _, c := range p.constraints {
		bound, err := c.onNode(n)
		if err != nil {
			return nil, err
		}
		demands.Constraints = append(demands.Constraints, bound)
	}
	return demands, nil
}

// checkForeign returns an error if devices that fit does not support could serve a request, whether or not they are free.
func (p *compiledClaims) checkForeign(g driverDevices, b *fit.Budget) error {
	for _, row := range p.selectors {
		matching, err := filterDevices(row, g.driver, g.devices, b)
		if err != nil {
			return delegatef("driver %s: %w", g.driver, err)
		}
		if slices.ContainsFunc(matching, func(word uint64) bool { return word != 0 }) {
			return delegatef("a device of driver %s matches as well", g.driver)
		}
	}
	return nil
}

// checkNonLocal returns an error if devices that are not local to one node could serve a request.
func (p *compiledClaims) checkNonLocal(roaming []*resourceapi.ResourceSlice, b *fit.Budget) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.checkedNonLocal, roaming) {
		return p.err
	}
	p.checkedNonLocal, p.err = roaming, nil
	for _, slice := range roaming {
		if p.err = p.checkForeign(devicesOfSlice(slice), b); p.err != nil {
			break
		}
	}
	if errors.Is(p.err, fit.ErrTooComplex) {
		p.checkedNonLocal = nil
	}
	return p.err
}

// filterDevices returns the devices that match all selectors.
func filterDevices(row []*selector, driver string, devices []*resourceapi.Device, b *fit.Budget) (fit.Set, error) {
	set := fit.NewSet(len(devices))
	for i := range devices {
		set.Add(i)
	}
	var err error
	for _, s := range row {
		if set, err = s.filter(driver, devices, set, b); err != nil {
			return nil, err
		}
	}
	return set, nil
}
