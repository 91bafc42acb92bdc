package requirements

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/lru"
)

// Classes finds DeviceClasses (fwk.DeviceClassLister).
type Classes interface {
	Get(name string) (*resourceapi.DeviceClass, error)
}

// Roaming returns the slices of devices that are not bound to one node, of every driver (index.Index).
type Roaming interface {
	Roaming() []*resourceapi.ResourceSlice
}

// How much is remembered: of demands, of the selectors they are made of, of what one selector says.
const (
	maxPlans    = 256
	maxStages   = 512
	maxVerdicts = 8192
	maxAnswers  = 8192
)

// Reader reads claims. It remembers what selectors say about devices, and is safe for concurrent use.
//
// It reads them as the allocator of Kubernetes 1.37 does with the features that are on by default; what
// other features add is left to that allocator.
type Reader struct {
	classes Classes
	roaming Roaming
	// plans are by key, stages by the texts of their selectors.
	plans, stages *lru.Cache
	surveys       *surveys
}

// NewReader returns a reader.
func NewReader(classes Classes, roaming Roaming) *Reader {
	return &Reader{classes: classes, roaming: roaming, plans: lru.New(maxPlans), stages: lru.New(maxStages), surveys: &surveys{nodes: map[string]*survey{}}}
}

// Read returns what the claims, which are not allocated, ask for together, in the order in which the pod
// names them. It reads their specs only. An error wraps ErrDelegate when fit cannot decide it, on any node.
func (r *Reader) Read(claims []*resourceapi.ResourceClaim) (*Demand, error) {
	var s sketch
	for _, claim := range claims {
		if err := s.claim(claim, r.classes); err != nil {
			return nil, err
		}
	}
	d := &Demand{Key: s.key()}
	for _, request := range s.requests {
		d.names = append(d.names, request.name)
	}
	var err error
	if d.plan, err = r.plan(d.Key, &s); err != nil {
		return nil, err
	}
	if err := d.plan.roams(r.roaming.Roaming()); err != nil {
		return nil, err
	}
	return d, nil
}

// plan returns the plan that is known for the key, or makes it.
func (r *Reader) plan(key string, s *sketch) (*plan, error) {
	if known, ok := r.plans.Get(key); ok {
		if p, ok := known.(*plan); ok {
			return p, nil
		}
	}
	var stages [][]*stage
	for i := range s.requests {
		for j := range s.requests[i].alternatives {
			row, err := r.compile(s.requests[i].alternatives[j].selectors)
			if err != nil {
				return nil, delegate("request %s: %w", s.requests[i].name, err)
			}
			stages = append(stages, row)
		}
	}
	p := newPlan(s, stages, r.surveys)
	r.plans.Add(key, p)
	return p, nil
}

// compile returns the stages of the selectors: as many selectors in a row as can be remembered together
// are one.
func (r *Reader) compile(texts []string) ([]*stage, error) {
	var stages []*stage
	var row []selector
	flush := func() {
		if len(row) > 0 {
			stages = append(stages, r.stage(row))
			row = nil
		}
	}
	for _, text := range texts {
		s, err := newSelector(text)
		if err != nil {
			return nil, err
		}
		if s.opaque {
			flush()
		}
		row = append(row, s)
		if s.opaque {
			flush()
		}
	}
	flush()
	return stages, nil
}

// stage returns the stage that is known for the selectors, with what it remembers, or makes it.
func (r *Reader) stage(row []selector) *stage {
	var texts []string
	for _, s := range row {
		texts = append(texts, s.text)
	}
	key := strings.Join(texts, "\x00")
	if known, ok := r.stages.Get(key); ok {
		if s, ok := known.(*stage); ok {
			return s
		}
	}
	s := newStage(slices.Clip(row))
	r.stages.Add(key, s)
	return s
}
