package index

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// withoutHiddenTaint returns the slice without the taints whose key is Config.HiddenTaint. It copies what it changes.
func (x *Index) withoutHiddenTaint(slice *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	hidden := func(t resourceapi.DeviceTaint) bool { return t.Key == x.config.HiddenTaint }
	tainted := func(d resourceapi.Device) bool { return slices.ContainsFunc(d.Taints, hidden) }
	if x.config.HiddenTaint == "" || !slices.ContainsFunc(slice.Spec.Devices, tainted) {
		return slice
	}
	changed := *slice
	changed.Spec.Devices = slices.Clone(slice.Spec.Devices)
	for i := range changed.Spec.Devices {
		d := &changed.Spec.Devices[i]
		d.Taints = slices.DeleteFunc(slices.Clone(d.Taints), hidden)
	}
	return &changed
}
