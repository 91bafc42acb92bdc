package requirements

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// on returns the constraint with the values that the node's devices have.
func (c *constraint) on(n *index.Node) (fit.Constraint, error) {
	bound := fit.Constraint{Attribute: string(c.attribute), Distinct: c.distinct, Members: c.members, Values: make([]int32, len(n.Devices))}
	numbers := map[value]int32{}
	for i, d := range n.Devices {
		a, ok := attribute(d, n.Driver, c.attribute)
		if !ok {
			continue
		}
		v, ok := valueOf(&a)
		if !ok {
			return fit.Constraint{}, delegate("attribute %s is not one plain value", c.attribute)
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

// attribute returns the device's attribute of the name; one in the driver's own domain may stand without.
func attribute(d *resourceapi.Device, driver string, name resourceapi.FullyQualifiedName) (resourceapi.DeviceAttribute, bool) {
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

// value is an attribute's value: two are equal when they are of one type and equal. Versions are equal
// as texts, as the API wants them in their shortest form.
type value struct {
	kind    byte
	text    string
	integer int64
}

// valueOf returns the value, and false for a list or a type that is not known.
func valueOf(a *resourceapi.DeviceAttribute) (value, bool) {
	switch {
	case isList(a):
		return value{}, false
	case a.StringValue != nil:
		return value{kind: 's', text: *a.StringValue}, true
	case a.IntValue != nil:
		return value{kind: 'i', integer: *a.IntValue}, true
	case a.BoolValue != nil && *a.BoolValue:
		return value{kind: 'y'}, true
	case a.BoolValue != nil:
		return value{kind: 'n'}, true
	case a.VersionValue != nil:
		return value{kind: 'v', text: *a.VersionValue}, true
	}
	return value{}, false
}
