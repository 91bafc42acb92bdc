package requirements

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/lru"
)

// Classes gets DeviceClasses (fwk.DeviceClassLister).
type Classes interface {
	Get(name string) (*resourceapi.DeviceClass, error)
}

// NonLocal lists the ResourceSlices of devices that are not local to one node (index.Index).
type NonLocal interface {
	NonLocalSlices() []*resourceapi.ResourceSlice
}

// Limits of the caches: compiled claims, selector chains, results of one chain, results of compiled claims.
const (
	maxCompiled     = 256
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
	// compiled are by key, stages by the texts of their selectors.
	compiled, chains *lru.Cache
	digests          *nodeDigestCache
}

// NewReader returns a reader.
func NewReader(classes Classes, nonLocal NonLocal) *Reader {
	return &Reader{
		classes: classes, nonLocal: nonLocal, compiled: lru.New(maxCompiled), chains: lru.New(maxChains),
		digests: &nodeDigestCache{nodes: map[string]*nodeDigests{}},
	}
}

// Read returns what the claims, which are not allocated, require together, in the order in which the pod lists them. It
// reads their specs only. An error wraps ErrDelegate if fit does not decide on any node.
func (r *Reader) Read(claims []*resourceapi.ResourceClaim) (*PodRequirements, error) {
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
	if d.compiled, err = r.compiledFor(d.Key, &s); err != nil {
		return nil, err
	}
	if err := d.compiled.checkNonLocal(r.nonLocal.NonLocalSlices()); err != nil {
		return nil, err
	}
	return d, nil
}

// compiledFor returns the cached compiled claims for the key, or compiles them.
func (r *Reader) compiledFor(key string, s *parsedClaims) (*compiledClaims, error) {
	if known, ok := r.compiled.Get(key); ok {
		if p, ok := known.(*compiledClaims); ok {
			return p, nil
		}
	}
	var stages [][]*selectorChain
	for i := range s.requests {
		for j := range s.requests[i].alternatives {
			row, err := r.compileSelectors(s.requests[i].alternatives[j].selectors)
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
func (r *Reader) compileSelectors(texts []string) ([]*selectorChain, error) {
	var stages []*selectorChain
	var row []selector
	flush := func() {
		if len(row) > 0 {
			stages = append(stages, r.chainFor(row))
			row = nil
		}
	}
	for _, text := range texts {
		s, err := newSelector(text)
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
