package requirements

import (
	"errors"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/lru"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Classes gets DeviceClasses (fwk.DeviceClassLister).
type Classes interface {
	Get(name string) (*resourceapi.DeviceClass, error)
}

// NonLocal lists the ResourceSlices of devices that are not local to one node (index.Index).
type NonLocal interface {
	NonLocalSlices() []*resourceapi.ResourceSlice
}

// Limits of the caches: compiled claims, selectors, results of one selector, results of compiled claims.
const (
	maxCompiled     = 256
	maxSelectors    = 1024
	maxMatchResults = 4096
	maxAnswers      = 8192
)

// Reader evaluates claims and caches results. It is safe for concurrent use.
//
// It evaluates them as the allocator of Kubernetes 1.37 does with the features that are on by default. Claims that use
// other features are delegated to that allocator.
type Reader struct {
	classes  Classes
	nonLocal NonLocal
	// compiled are by key, selectors by their text.
	compiled, selectors *lru.Cache
	digests             *nodeDigestCache
}

// NewReader returns a reader.
func NewReader(classes Classes, nonLocal NonLocal) *Reader {
	return &Reader{
		classes: classes, nonLocal: nonLocal, compiled: lru.New(maxCompiled), selectors: lru.New(maxSelectors),
		digests: &nodeDigestCache{nodes: map[string]*nodeDigests{}},
	}
}

// Read returns what the claims, which are not allocated, require together, in the order in which the pod lists them. It
// reads their specs only. An error wraps ErrDelegate if fit does not decide on any node, and fit.ErrTooComplex if the
// budget is exceeded, from which steps for the selectors are taken. A later call continues with cached selectors.
func (r *Reader) Read(claims []*resourceapi.ResourceClaim, b *fit.Budget) (*PodRequirements, error) {
	var s parsedClaims
	for _, claim := range claims {
		if err := s.addClaim(claim, r.classes); err != nil {
			return nil, err
		}
	}
	if !b.Spend(alternativeSteps * s.countAlternatives()) {
		return nil, fit.ErrTooComplex
	}
	d := &PodRequirements{Key: s.key()}
	for _, request := range s.requests {
		d.names = append(d.names, request.name)
	}
	var err error
	if d.compiled, err = r.compiledFor(d.Key, &s, b); err != nil {
		return nil, err
	}
	if err := d.compiled.checkNonLocal(r.nonLocal.NonLocalSlices(), b); err != nil {
		return nil, err
	}
	return d, nil
}

// LeastSteps returns how many steps it takes at least to read the claims and to evaluate them on a node.
func (r *Reader) LeastSteps(claims []*resourceapi.ResourceClaim) int {
	steps, counted := 0, map[string]bool{}
	for _, claim := range claims {
		for i := range claim.Spec.Devices.Requests {
			for _, way := range alternativesOf(&claim.Spec.Devices.Requests[i]) {
				steps += alternativeSteps
				for _, s := range way.Selectors {
					if s.CEL == nil || counted[s.CEL.Expression] {
						continue
					}
					counted[s.CEL.Expression] = true
					if _, compiled := r.selectors.Get(s.CEL.Expression); !compiled {
						steps += stepsToCompile(s.CEL.Expression)
					}
				}
			}
		}
	}
	return steps
}

// compiledFor returns the cached compiled claims for the key, or compiles them.
func (r *Reader) compiledFor(key string, s *parsedClaims, b *fit.Budget) (*compiledClaims, error) {
	if known, ok := r.compiled.Get(key); ok {
		if p, ok := known.(*compiledClaims); ok {
			return p, nil
		}
	}
	var selectors [][]*selector
	for i := range s.requests {
		for j := range s.requests[i].alternatives {
			row, err := r.compileSelectors(s.requests[i].alternatives[j].selectors, b)
			if errors.Is(err, fit.ErrTooComplex) {
				return nil, err
			}
			if err != nil {
				return nil, delegatef("request %s: %w", s.requests[i].name, err)
			}
			selectors = append(selectors, row)
		}
	}
	p := newCompiledClaims(s, selectors, r.digests)
	r.compiled.Add(key, p)
	return p, nil
}

// compileSelectors returns the compiled selectors.
func (r *Reader) compileSelectors(texts []string, b *fit.Budget) ([]*selector, error) {
	var row []*selector
	for _, text := range texts {
		s, err := r.selectorFor(text, b)
		if err != nil {
			return nil, err
		}
		row = append(row, s)
	}
	return row, nil
}

// selectorFor returns the cached selector, or compiles it.
func (r *Reader) selectorFor(text string, b *fit.Budget) (*selector, error) {
	if known, ok := r.selectors.Get(text); ok {
		if s, ok := known.(*selector); ok {
			return s, nil
		}
	}
	if !b.Spend(stepsToCompile(text)) {
		return nil, fit.ErrTooComplex
	}
	s, err := newSelector(text)
	if err == nil {
		r.selectors.Add(text, s)
	}
	return s, err
}
