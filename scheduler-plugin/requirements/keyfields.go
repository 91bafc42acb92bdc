package requirements

import (
	"encoding/binary"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// readSet is what of a device an expression can see, beside its driver and whether it may be allocated
// more than once.
type readSet struct {
	attributes, capacities []readField
}

// readField is one attribute or capacity that is read, as device.attributes["domain"].id.
type readField struct{ domain, id string }

// union returns what either sees.
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

// names returns the names under which what is read may stand on a device of the driver: in the driver's
// own domain it may stand without.
func (r readField) names(driver string) []resourceapi.QualifiedName {
	qualified := resourceapi.QualifiedName(r.domain + "/" + r.id)
	if r.domain == driver {
		return []resourceapi.QualifiedName{resourceapi.QualifiedName(r.id), qualified}
	}
	return []resourceapi.QualifiedName{qualified}
}

// keyFields is the sight of devices of one driver, by the names to look for.
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

// appendKey adds how the device looks: devices of one driver that look the same are the same to whoever
// sees no more of them.
func (g keyFields) appendKey(look []byte, d *resourceapi.Device) []byte {
	if isShared(d) {
		look = append(look, '*')
	}
	for _, names := range g.attributes {
		look = appendAttributes(look, d, names)
	}
	for _, names := range g.capacities {
		look = appendCapacities(look, d, names)
	}
	return look
}

func appendAttributes(look []byte, d *resourceapi.Device, names []resourceapi.QualifiedName) []byte {
	for _, name := range names {
		a, ok := d.Attributes[name]
		look = appendAttribute(look, ok, &a)
	}
	return look
}

func appendCapacities(look []byte, d *resourceapi.Device, names []resourceapi.QualifiedName) []byte {
	for _, name := range names {
		if c, ok := d.Capacity[name]; ok {
			look = appendQuantity(look, &c.Value)
			continue
		}
		look = append(look, '-')
	}
	return look
}

func appendQuantity(look []byte, q *resource.Quantity) []byte {
	if n, whole := q.AsInt64(); whole {
		return binary.AppendVarint(append(look, 'q'), n)
	}
	return appendText(append(look, 'Q'), q.String())
}

func appendAttribute(look []byte, ok bool, a *resourceapi.DeviceAttribute) []byte {
	switch {
	case !ok:
		return append(look, '-')
	case isList(a):
		return appendList(look, a)
	case a.IntValue != nil:
		return binary.AppendVarint(append(look, 'i'), *a.IntValue)
	case a.BoolValue != nil && *a.BoolValue:
		return append(look, 'y')
	case a.BoolValue != nil:
		return append(look, 'n')
	case a.StringValue != nil:
		return appendText(append(look, 's'), *a.StringValue)
	case a.VersionValue != nil:
		return appendText(append(look, 'v'), *a.VersionValue)
	}
	return append(look, '?')
}

// isList reports whether the attribute is a list, as the feature DRAListTypeAttributes allows.
func isList(a *resourceapi.DeviceAttribute) bool {
	return a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil
}

func appendList(look []byte, a *resourceapi.DeviceAttribute) []byte {
	look = binary.AppendVarint(append(look, 'I'), int64(len(a.IntValues)))
	for _, n := range a.IntValues {
		look = binary.AppendVarint(look, n)
	}
	look = binary.AppendVarint(append(look, 'B'), int64(len(a.BoolValues)))
	for _, b := range a.BoolValues {
		look = append(look, map[bool]byte{true: 'y', false: 'n'}[b])
	}
	look = binary.AppendVarint(append(look, 'S'), int64(len(a.StringValues)))
	for _, s := range a.StringValues {
		look = appendText(look, s)
	}
	look = binary.AppendVarint(append(look, 'V'), int64(len(a.VersionValues)))
	for _, s := range a.VersionValues {
		look = appendText(look, s)
	}
	return look
}

func appendText(look []byte, s string) []byte {
	return append(binary.AppendUvarint(look, uint64(len(s))), s...)
}
