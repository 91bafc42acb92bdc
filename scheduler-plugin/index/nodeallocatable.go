package index

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// MapsNodeResources reports whether a published device, of any driver, provides resources of its node, such as cpu (KEP-5517). It takes no lock.
func (x *Index) MapsNodeResources() bool { return x.mapping.Load() > 0 }

// countMapping counts the ResourceSlices with such devices, when one of them is replaced. Either one can be nil.
func (x *Index) countMapping(before, after *resourceapi.ResourceSlice) {
	if MapsNodeResources(before) {
		x.mapping.Add(-1)
	}
	if MapsNodeResources(after) {
		x.mapping.Add(1)
	}
}

// MapsNodeResources reports whether a device of the ResourceSlice provides resources of its node. A nil ResourceSlice has none.
func MapsNodeResources(s *resourceapi.ResourceSlice) bool {
	return s != nil && slices.ContainsFunc(s.Spec.Devices, func(d resourceapi.Device) bool { return len(d.NodeAllocatableResources) > 0 })
}
