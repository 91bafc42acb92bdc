package index

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// withoutHiddenTaint returns the slice as the index is to see it: without the taints of Config.Unseen.
func (x *Index) withoutHiddenTaint(slice *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	unseen := func(t resourceapi.DeviceTaint) bool { return t.Key == x.config.HiddenTaint }
	tainted := func(d resourceapi.Device) bool { return slices.ContainsFunc(d.Taints, unseen) }
	if x.config.HiddenTaint == "" || !slices.ContainsFunc(slice.Spec.Devices, tainted) {
		return slice
	}
	changed := *slice
	changed.Spec.Devices = slices.Clone(slice.Spec.Devices)
	for i := range changed.Spec.Devices {
		d := &changed.Spec.Devices[i]
		d.Taints = slices.DeleteFunc(slices.Clone(d.Taints), unseen)
	}
	return &changed
}
