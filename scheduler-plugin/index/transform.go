package index

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// NewSliceTransform returns a transformation for the informer of ResourceSlices, which reduces the memory of thousands of
// nodes with equal hardware: devices share equal strings, attributes, capacities and counters, and ResourceSlices have no
// managedFields. The MIG devices of a GPU with one profile have equal attributes. It modifies the object that the informer
// received, before any other code has it.
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
	attributes sharedTable[uint64, map[resourceapi.QualifiedName]resourceapi.DeviceAttribute]
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
		d.Attributes = shareMap(s, &s.attributes, d.Attributes, attributesKind)
		d.Capacity = shareMap(s, &s.capacities, d.Capacity, capacitiesKind)
		for j := range d.ConsumesCounters {
			c := &d.ConsumesCounters[j]
			c.CounterSet = s.text(c.CounterSet)
			c.Counters = shareMap(s, &s.counters, c.Counters, countersKind)
		}
	}
	for i := range spec.SharedCounters {
		c := &spec.SharedCounters[i]
		c.Name = s.text(c.Name)
		c.Counters = shareMap(s, &s.counters, c.Counters, countersKind)
	}
}

// shareAttribute replaces the value.
func (s *sharedParts) shareAttribute(a resourceapi.DeviceAttribute) resourceapi.DeviceAttribute {
	a.StringValue, a.VersionValue = s.pointer(a.StringValue), s.pointer(a.VersionValue)
	if a.IntValue != nil {
		number, known := s.numbers[*a.IntValue]
		if !known {
			number = a.IntValue
			s.numbers.add(*number, number)
		}
		a.IntValue = number
	}
	return a
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

// shareMap returns the shared map with the content of m. Of different maps with one hash, the table has the last.
func shareMap[K ~string, V any, C comparable](s *sharedParts, t *sharedTable[uint64, map[K]V], m map[K]V, kind kindOfMap[V, C]) map[K]V {
	if len(m) == 0 {
		return m
	}
	var hash uint64
	for name, v := range m {
		hash += maphash.Comparable(s.seed, named[C]{string(name), kind.content(v)})
	}
	if known, ok := (*t)[hash]; ok && maps.EqualFunc(known, m, kind.equal) {
		return known
	}
	// A full small map grows with an assignment to an existing key, so that m is not modified.
	shared := make(map[K]V, len(m))
	for name, v := range m {
		shared[K(s.text(string(name)))] = kind.share(s, v)
	}
	t.add(hash, shared)
	return shared
}

// named is the content of a value that is hashed, with its name.
type named[C comparable] struct {
	name    string
	content C
}

// kindOfMap has the functions of the values of a map. Equal values have equal contents.
type kindOfMap[V any, C comparable] struct {
	content func(V) C
	equal   func(a, b V) bool
	share   func(*sharedParts, V) V
}

// attributeContent is an attribute without its lists.
type attributeContent struct {
	number        int64
	truth         bool
	text, version string
}

var (
	attributesKind = kindOfMap[resourceapi.DeviceAttribute, attributeContent]{
		content: func(a resourceapi.DeviceAttribute) attributeContent {
			return attributeContent{ptr.Deref(a.IntValue, 0), ptr.Deref(a.BoolValue, false), ptr.Deref(a.StringValue, ""), ptr.Deref(a.VersionValue, "")}
		},
		equal: equalAttributes,
		share: (*sharedParts).shareAttribute,
	}
	capacitiesKind = kindOfMap[resourceapi.DeviceCapacity, resource.Quantity]{
		content: func(c resourceapi.DeviceCapacity) resource.Quantity { return c.Value },
		equal: func(a, b resourceapi.DeviceCapacity) bool {
			return a.Value == b.Value && (a.RequestPolicy == b.RequestPolicy || equality.Semantic.DeepEqual(a.RequestPolicy, b.RequestPolicy))
		},
		share: func(_ *sharedParts, c resourceapi.DeviceCapacity) resourceapi.DeviceCapacity { return c },
	}
	countersKind = kindOfMap[resourceapi.Counter, resource.Quantity]{
		content: func(c resourceapi.Counter) resource.Quantity { return c.Value },
		equal:   func(a, b resourceapi.Counter) bool { return a == b },
		share:   func(_ *sharedParts, c resourceapi.Counter) resourceapi.Counter { return c },
	}
)

func equalAttributes(a, b resourceapi.DeviceAttribute) bool {
	return ptr.Equal(a.IntValue, b.IntValue) && ptr.Equal(a.BoolValue, b.BoolValue) &&
		ptr.Equal(a.StringValue, b.StringValue) && ptr.Equal(a.VersionValue, b.VersionValue) &&
		slices.Equal(a.IntValues, b.IntValues) && slices.Equal(a.BoolValues, b.BoolValues) &&
		slices.Equal(a.StringValues, b.StringValues) && slices.Equal(a.VersionValues, b.VersionValues)
}
