package requirements

import (
	"errors"
	"slices"
	"strings"

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

// Limits of the caches: compiled claims, selectors, selector chains, results of one chain, results of compiled claims.
const (
	maxCompiled     = 256
	maxSelectors    = 1024
	maxChains       = 512
	maxMatchResults = 8192
	maxAnswers      = 8192
)

// Reader evaluates claims and caches results. It is safe for concurrent use.
//
// It evaluates them as the allocator of Kubernetes 1.37 does with the features that are on by default. Claims that use
// other features are delegated to that allocator.
type Reader struct {
	classes  Classes
	nonLocal NonLocal
	// compiled are by key, selectors by their text, chains by the texts of their selectors.
	compiled, selectors, chains *lru.Cache
	digests                     *nodeDigestCache
}

// NewReader returns a reader.
func NewReader(classes Classes, nonLocal NonLocal) *Reader {
	return &Reader{
		classes: classes, nonLocal: nonLocal, compiled: lru.New(maxCompiled), selectors: lru.New(maxSelectors), chains: lru.New(maxChains),
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

// compiledFor returns the cached compiled claims for the key, or compiles them.
func (r *Reader) compiledFor(key string, s *parsedClaims, b *fit.Budget) (*compiledClaims, error) {
	if known, ok := r.compiled.Get(key); ok {
		if p, ok := known.(*compiledClaims); ok {
			return p, nil
		}
	}
	var stages [][]*selectorChain
	for i := range s.requests {
		for j := range s.requests[i].alternatives {
			row, err := r.compileSelectors(s.requests[i].alternatives[j].selectors, b)
			if errors.Is(err, fit.ErrTooComplex) {
				return nil, err
			}
			if err != nil {
				return nil, delegatef("request %s: %w", s.requests[i].name, err)
			}
			stages = append(stages, row)
		}
	}
	p := newCompiledClaims(s, stages, r.digests)
	r.compiled.Add(key, p)
	return p, nil
}

// compileSelectors returns the chains of the selectors. Consecutive selectors with known read sets form one chain;
// every other selector is a chain that is not cached.
func (r *Reader) compileSelectors(texts []string, b *fit.Budget) ([]*selectorChain, error) {
	var stages []*selectorChain
	var row []selector
	flush := func() {
		if len(row) > 0 {
			stages = append(stages, r.chainFor(row))
			row = nil
		}
	}
	for _, text := range texts {
		s, err := r.selectorFor(text, b)
		if err != nil {
			return nil, err
		}
		if s.readsUnknown {
			flush()
		}
		row = append(row, s)
		if s.readsUnknown {
			flush()
		}
	}
	flush()
	return stages, nil
}

// selectorFor returns the cached selector, or compiles it.
func (r *Reader) selectorFor(text string, b *fit.Budget) (selector, error) {
	if known, ok := r.selectors.Get(text); ok {
		if s, ok := known.(selector); ok {
			return s, nil
		}
	}
	if !b.Spend(compileSteps + characterStep*len(text)) {
		return selector{}, fit.ErrTooComplex
	}
	s, err := newSelector(text)
	if err == nil {
		r.selectors.Add(text, s)
	}
	return s, err
}

// chainFor returns the cached chain of the selectors, or creates it.
func (r *Reader) chainFor(row []selector) *selectorChain {
	var texts []string
	for _, s := range row {
		texts = append(texts, s.text)
	}
	key := strings.Join(texts, "\x00")
	if known, ok := r.chains.Get(key); ok {
		if s, ok := known.(*selectorChain); ok {
			return s
		}
	}
	s := newSelectorChain(slices.Clip(row))
	r.chains.Add(key, s)
	return s
}
