package template

import (
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// DynamicResources has the fields of Karpenter's type of this name, which a cloud provider returns for an instance type. Source: package cloudprovider of
// sigs.k8s.io/karpenter.
type DynamicResources struct {
	ResourceSliceTemplates []ResourceSliceTemplate `json:"resourceSliceTemplates"`
	AttributeBindings      []AttributeBinding      `json:"attributeBindings"`
}

// ResourceSliceTemplate has either devices or counter sets.
type ResourceSliceTemplate struct {
	Driver         string                   `json:"driver"`
	Pool           ResourcePool             `json:"pool"`
	Devices        []resourceapi.Device     `json:"devices,omitempty"`
	SharedCounters []resourceapi.CounterSet `json:"sharedCounters,omitempty"`
}

// ResourcePool names the pool.
type ResourcePool struct {
	Name string `json:"name"`
}

// AttributeBinding lists devices that will have the same value of an attribute, which is named with its domain.
type AttributeBinding struct {
	Attribute resourceapi.QualifiedName `json:"attribute"`
	Devices   []DeviceID                `json:"devices"`
}

// DeviceID identifies a device.
type DeviceID struct {
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Device string `json:"device"`
}

// dynamicResources returns the template without the attributes whose values are unknown, and with the bindings of devices that have equal placeholders.
func (t template) dynamicResources() DynamicResources {
	var r DynamicResources
	for _, name := range t.unknown {
		r.AttributeBindings = append(r.AttributeBindings, t.bindings(name)...)
	}
	for _, s := range t.pool.Slices {
		part := ResourceSliceTemplate{Driver: t.driver, Pool: ResourcePool{Name: t.pool.Name}, SharedCounters: s.SharedCounters}
		for _, d := range s.Devices {
			d.Attributes = maps.Clone(d.Attributes)
			for _, name := range t.unknown {
				delete(d.Attributes, name)
			}
			part.Devices = append(part.Devices, d)
		}
		r.ResourceSliceTemplates = append(r.ResourceSliceTemplates, part)
	}
	return r
}

// bindings returns the bindings of an attribute, in the order of the devices. A value that one device has binds nothing.
func (t template) bindings(name resourceapi.QualifiedName) []AttributeBinding {
	qualified := name
	if !strings.Contains(string(name), "/") {
		qualified = resourceapi.QualifiedName(t.driver) + "/" + name
	}
	var found []AttributeBinding
	numbers := map[string]int{}
	for _, s := range t.pool.Slices {
		for _, d := range s.Devices {
			value, has := d.Attributes[name]
			if !has {
				continue
			}
			number, known := numbers[value.String()]
			if !known {
				number = len(found)
				numbers[value.String()] = number
				found = append(found, AttributeBinding{Attribute: qualified})
			}
			found[number].Devices = append(found[number].Devices, DeviceID{t.driver, t.pool.Name, d.Name})
		}
	}
	return slices.DeleteFunc(found, func(b AttributeBinding) bool { return len(b.Devices) < 2 })
}
