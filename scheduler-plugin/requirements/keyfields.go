package requirements

import (
	"encoding/binary"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// readSet is what an expression reads of a device, in addition to its driver and allowMultipleAllocations.
type readSet struct {
	attributes, capacities []readField
}

// readField is one attribute or capacity, as in device.attributes["domain"].id.
type readField struct{ domain, id string }

// union returns what either reads.
func (s readSet) union(other readSet) readSet {
	return readSet{unionReads(s.attributes, other.attributes), unionReads(s.capacities, other.capacities)}
}

func unionReads(a, b []readField) []readField {
	all := slices.Clone(a)
	for _, r := range b {
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// names returns the names that the field can have on a device of the driver: the driver's own domain may be omitted.
func (r readField) names(driver string) []resourceapi.QualifiedName {
	qualified := resourceapi.QualifiedName(r.domain + "/" + r.id)
	if r.domain == driver {
		return []resourceapi.QualifiedName{resourceapi.QualifiedName(r.id), qualified}
	}
	return []resourceapi.QualifiedName{qualified}
}

// keyFields is a readSet for devices of one driver, as the names to key up.
type keyFields struct {
	attributes, capacities [][]resourceapi.QualifiedName
}

func (s readSet) keyFieldsOf(driver string) keyFields {
	var g keyFields
	for _, r := range s.attributes {
		g.attributes = append(g.attributes, r.names(driver))
	}
	for _, r := range s.capacities {
		g.capacities = append(g.capacities, r.names(driver))
	}
	return g
}

// appendKey appends the key of the device: an encoding of the values of the fields. Devices of one driver with equal
// keys are equal for every expression that reads no more than these fields.
func (g keyFields) appendKey(key []byte, d *resourceapi.Device) []byte {
	if isShared(d) {
		key = append(key, '*')
	}
	for _, names := range g.attributes {
		key = appendAttributes(key, d, names)
	}
	for _, names := range g.capacities {
		key = appendCapacities(key, d, names)
	}
	return key
}

func appendAttributes(key []byte, d *resourceapi.Device, names []resourceapi.QualifiedName) []byte {
	for _, name := range names {
		a, ok := d.Attributes[name]
		key = appendAttribute(key, ok, &a)
	}
	return key
}

func appendCapacities(key []byte, d *resourceapi.Device, names []resourceapi.QualifiedName) []byte {
	for _, name := range names {
		if c, ok := d.Capacity[name]; ok {
			key = appendQuantity(key, &c.Value)
			continue
		}
		key = append(key, '-')
	}
	return key
}

func appendQuantity(key []byte, q *resource.Quantity) []byte {
	if n, whole := q.AsInt64(); whole {
		return binary.AppendVarint(append(key, 'q'), n)
	}
	return appendText(append(key, 'Q'), q.String())
}

func appendAttribute(key []byte, ok bool, a *resourceapi.DeviceAttribute) []byte {
	switch {
	case !ok:
		return append(key, '-')
	case isList(a):
		return appendList(key, a)
	case a.IntValue != nil:
		return binary.AppendVarint(append(key, 'i'), *a.IntValue)
	case a.BoolValue != nil && *a.BoolValue:
		return append(key, 'y')
	case a.BoolValue != nil:
		return append(key, 'n')
	case a.StringValue != nil:
		return appendText(append(key, 's'), *a.StringValue)
	case a.VersionValue != nil:
		return appendText(append(key, 'v'), *a.VersionValue)
	}
	return append(key, '?')
}

// isList reports whether the attribute is a list, as the feature DRAListTypeAttributes allows.
func isList(a *resourceapi.DeviceAttribute) bool {
	return a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil
}

func appendList(key []byte, a *resourceapi.DeviceAttribute) []byte {
	key = binary.AppendVarint(append(key, 'I'), int64(len(a.IntValues)))
	for _, n := range a.IntValues {
		key = binary.AppendVarint(key, n)
	}
	key = binary.AppendVarint(append(key, 'B'), int64(len(a.BoolValues)))
	for _, b := range a.BoolValues {
		key = append(key, map[bool]byte{true: 'y', false: 'n'}[b])
	}
	key = binary.AppendVarint(append(key, 'S'), int64(len(a.StringValues)))
	for _, s := range a.StringValues {
		key = appendText(key, s)
	}
	key = binary.AppendVarint(append(key, 'V'), int64(len(a.VersionValues)))
	for _, s := range a.VersionValues {
		key = appendText(key, s)
	}
	return key
}

func appendText(key []byte, s string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(s))), s...)
}
