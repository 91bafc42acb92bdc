package index

import (
	"hash/maphash"
	"maps"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"
)

// NewSliceTransform returns a transformation for the informer of ResourceSlices, which reduces the memory of thousands of
// nodes with equal hardware: ResourceSlices share equal strings, values of attributes, capacities and counters, and have
// no managedFields. It modifies the object that the informer received, before any other code has it.
func NewSliceTransform() cache.TransformFunc {
	s := &sharedParts{seed: maphash.MakeSeed()}
	return func(object any) (any, error) {
		if slice, ok := object.(*resourceapi.ResourceSlice); ok {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.share(slice)
		}
		return object, nil
	}
}

// NewTaintRuleTransform returns a transformation for the informer of DeviceTaintRules, after which the rules whose taint
// has the key select no device. A tracker of ResourceSlices copies every ResourceSlice with a device that a rule selects
// (resourceslice/tracker.applyPatches in k8s.io/dynamic-resource-allocation).
func NewTaintRuleTransform(key string) cache.TransformFunc {
	return func(object any) (any, error) {
		rule, ok := object.(*resourceapi.DeviceTaintRule)
		if !ok || rule.Spec.Taint.Key != key {
			return object, nil
		}
		hidden := *rule
		hidden.Spec.DeviceSelector = nil
		return &hidden, nil
	}
}

// maxShared is the number of entries of a table of shared parts. A full table is emptied: its parts stay in use, and
// later ResourceSlices share new ones.
const maxShared = 4096

// sharedParts has parts of ResourceSlices by their content.
type sharedParts struct {
	mu         sync.Mutex
	seed       maphash.Seed
	strings    sharedTable[string, *string]
	numbers    sharedTable[int64, *int64]
	capacities sharedTable[uint64, map[resourceapi.QualifiedName]resourceapi.DeviceCapacity]
	counters   sharedTable[uint64, map[string]resourceapi.Counter]
}

// sharedTable has at most maxShared parts by key.
type sharedTable[K comparable, V any] map[K]V

// add adds a part.
func (t *sharedTable[K, V]) add(key K, part V) {
	if *t == nil || len(*t) >= maxShared {
		*t = sharedTable[K, V]{}
	}
	(*t)[key] = part
}

// share replaces the parts of the ResourceSlice.
func (s *sharedParts) share(slice *resourceapi.ResourceSlice) {
	slice.ManagedFields = nil
	spec := &slice.Spec
	spec.Driver, spec.Pool.Name, spec.NodeName = s.text(spec.Driver), s.text(spec.Pool.Name), s.pointer(spec.NodeName)
	for i := range spec.Devices {
		d := &spec.Devices[i]
		d.Name = s.text(d.Name)
		s.shareAttributes(d.Attributes)
		d.Capacity = shareMap(s, &s.capacities, d.Capacity)
		for j := range d.ConsumesCounters {
			c := &d.ConsumesCounters[j]
			c.CounterSet = s.text(c.CounterSet)
			c.Counters = shareMap(s, &s.counters, c.Counters)
		}
	}
	for i := range spec.SharedCounters {
		c := &spec.SharedCounters[i]
		c.Name = s.text(c.Name)
		c.Counters = shareMap(s, &s.counters, c.Counters)
	}
}

// shareAttributes replaces the names and values. The map itself differs between devices, since it names the GPU.
func (s *sharedParts) shareAttributes(attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) {
	for name, a := range attributes {
		a.StringValue, a.VersionValue = s.pointer(a.StringValue), s.pointer(a.VersionValue)
		if a.IntValue != nil {
			number, known := s.numbers[*a.IntValue]
			if !known {
				number = a.IntValue
				s.numbers.add(*number, number)
			}
			a.IntValue = number
		}
		// The assignment replaces the string of the key, too.
		attributes[resourceapi.QualifiedName(s.text(string(name)))] = a
	}
}

// text returns the shared string.
func (s *sharedParts) text(text string) string { return *s.pointer(&text) }

// pointer returns the pointer to the shared string; nil for nil.
func (s *sharedParts) pointer(text *string) *string {
	if text == nil {
		return nil
	}
	known, ok := s.strings[*text]
	if !ok {
		known = text
		s.strings.add(*text, text)
	}
	return known
}

// amount is a capacity or a counter.
type amount interface {
	resourceapi.DeviceCapacity | resourceapi.Counter
}

// shareMap returns the shared map with the content of m. Of different maps with one hash, the table has the last.
func shareMap[K ~string, V amount](s *sharedParts, t *sharedTable[uint64, map[K]V], m map[K]V) map[K]V {
	if len(m) == 0 {
		return m
	}
	var hash uint64
	for name, v := range m {
		hash += maphash.Comparable(s.seed, named{string(name), valueOf(v)})
	}
	if known, ok := (*t)[hash]; ok && maps.EqualFunc(known, m, equalAmounts[V]) {
		return known
	}
	for name, v := range m {
		m[K(s.text(string(name)))] = v
	}
	t.add(hash, m)
	return m
}

// named is an amount with its name.
type named struct {
	name  string
	value resource.Quantity
}

func valueOf[V amount](v V) resource.Quantity {
	switch v := any(v).(type) {
	case resourceapi.DeviceCapacity:
		return v.Value
	case resourceapi.Counter:
		return v.Value
	}
	return resource.Quantity{}
}

func equalAmounts[V amount](a, b V) bool {
	if valueOf(a) != valueOf(b) {
		return false
	}
	x, ok := any(a).(resourceapi.DeviceCapacity)
	y, _ := any(b).(resourceapi.DeviceCapacity)
	return !ok || x.RequestPolicy == y.RequestPolicy || equality.Semantic.DeepEqual(x.RequestPolicy, y.RequestPolicy)
}
