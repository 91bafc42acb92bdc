package requirements

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// onNode returns the constraint with the values of the node's devices.
func (c *constraint) onNode(n *index.Node) (fit.Constraint, error) {
	bound := fit.Constraint{Attribute: string(c.attribute), Distinct: c.distinct, Members: c.members, Values: make([]int32, len(n.Devices))}
	numbers := map[attributeValue]int32{}
	for i, d := range n.Devices {
		a, ok := findAttribute(d, n.Driver, c.attribute)
		if !ok {
			continue
		}
		v, ok := attributeValueOf(&a)
		if !ok {
			return fit.Constraint{}, delegatef("attribute %s is not a single value", c.attribute)
		}
		number, known := numbers[v]
		if !known {
			number = int32(len(numbers) + 1)
			numbers[v] = number
		}
		bound.Values[i] = number
	}
	return bound, nil
}

// findAttribute returns the device's attribute with the name; the driver's own domain may be omitted.
func findAttribute(d *resourceapi.Device, driver string, name resourceapi.FullyQualifiedName) (resourceapi.DeviceAttribute, bool) {
	if a, ok := d.Attributes[resourceapi.QualifiedName(name)]; ok {
		return a, true
	}
	domain, id, qualified := strings.Cut(string(name), "/")
	if !qualified || domain != driver {
		return resourceapi.DeviceAttribute{}, false
	}
	a, ok := d.Attributes[resourceapi.QualifiedName(id)]
	return a, ok
}

// attributeValue is the value of an attribute. Values are equal if their types and contents are equal. Versions are
// compared as text: the API requires their canonical form.
type attributeValue struct {
	kind    byte
	text    string
	integer int64
}

// attributeValueOf returns the value, and false for a list or an unknown type.
func attributeValueOf(a *resourceapi.DeviceAttribute) (attributeValue, bool) {
	switch {
	case isList(a):
		return attributeValue{}, false
	case a.StringValue != nil:
		return attributeValue{kind: 's', text: *a.StringValue}, true
	case a.IntValue != nil:
		return attributeValue{kind: 'i', integer: *a.IntValue}, true
	case a.BoolValue != nil && *a.BoolValue:
		return attributeValue{kind: 'y'}, true
	case a.BoolValue != nil:
		return attributeValue{kind: 'n'}, true
	case a.VersionValue != nil:
		return attributeValue{kind: 'v', text: *a.VersionValue}, true
	}
	return attributeValue{}, false
}
