package demand

import (
	"encoding/binary"
	"slices"
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

	mu      sync.Mutex
	answers map[string]answer
	// shared are the answers by what is in them: nodes of one kind have one in common.
	shared map[string]*fit.Demand
	// roamed are the slices that were asked last, err what came of it.
	roamed []*resourceapi.ResourceSlice
	err    error
}

// answer is what is asked of a node of one content.
type answer struct {
	content uint64
	asked   *fit.Demand
	err     error
}

// maxShared bounds the answers that are kept to be shared: a cluster has few kinds of nodes.
const maxShared = 1024

func newPlan(s *sketch) *plan {
	return &plan{requests: s.requests, constraints: s.constraints, answers: map[string]answer{}, shared: map[string]*fit.Demand{}}
}

// on returns what is asked of the node.
func (p *plan) on(n *index.Node) (*fit.Demand, error) {
	p.mu.Lock()
	known, ok := p.answers[n.Name]
	p.mu.Unlock()
	if ok && known.content == n.Content {
		return known.asked, known.err
	}
	asked, err := p.ask(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		asked = p.share(asked)
	}
	p.answers[n.Name] = answer{n.Content, asked, err}
	return asked, err
}

func (p *plan) forget(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.answers, node)
}

// share returns the answer that is kept and equal, or keeps this one.
func (p *plan) share(asked *fit.Demand) *fit.Demand {
	key := string(content(asked))
	if known, ok := p.shared[key]; ok {
		return known
	}
	if len(p.shared) >= maxShared {
		clear(p.shared)
	}
	p.shared[key] = asked
	return asked
}

// content returns what differs between the answers of nodes.
func content(asked *fit.Demand) []byte {
	var k []byte
	for _, r := range asked.Requests {
		for _, a := range r.Alternatives {
			k = binary.AppendUvarint(k, uint64(len(a.Candidates)))
			for _, word := range a.Candidates {
				k = binary.LittleEndian.AppendUint64(k, word)
			}
			k = binary.AppendUvarint(k, uint64(len(a.Shares)))
			for _, s := range a.Shares {
				k = binary.AppendUvarint(k, s.MemoryBytes)
				k = binary.AppendVarint(k, int64(s.Shares))
				k = binary.AppendVarint(k, int64(s.Compute))
			}
		}
	}
	for _, c := range asked.Constraints {
		k = binary.AppendUvarint(k, uint64(len(c.Values)))
		for _, v := range c.Values {
			k = binary.AppendVarint(k, int64(v))
		}
	}
	return k
}

// ask works out what is asked of the node.
func (p *plan) ask(n *index.Node) (*fit.Demand, error) {
	for _, slice := range n.Slices {
		if slice.Spec.Driver == n.Driver {
			if err := strangeSlice(slice); err != nil {
				return nil, err
			}
			continue
		}
		if err := p.foreign(slice); err != nil {
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
func (p *plan) foreign(slice *resourceapi.ResourceSlice) error {
	if len(slice.Spec.Devices) == 0 {
		return nil
	}
	devices := make([]*resourceapi.Device, len(slice.Spec.Devices))
	for i := range slice.Spec.Devices {
		devices[i] = &slice.Spec.Devices[i]
	}
	for _, stages := range p.stages {
		matching, err := filter(stages, slice.Spec.Driver, devices)
		if err != nil {
			return delegate("driver %s: %w", slice.Spec.Driver, err)
		}
		if i := first(matching, len(devices)); i >= 0 {
			return delegate("device %s of driver %s matches, too", devices[i].Name, slice.Spec.Driver)
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
		if p.err = p.foreign(slice); p.err != nil {
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

// first returns the first device of the set, -1 for none.
func first(set fit.Set, devices int) int {
	for i := range devices {
		if set.Has(i) {
			return i
		}
	}
	return -1
}
