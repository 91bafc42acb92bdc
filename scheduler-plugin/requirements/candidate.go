package requirements

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// onNode returns what the alternative requires of the node with these groups of devices. An error means that fit does not
// decide on it.
func (a *alternative) onNode(n *index.Node, groups deviceGroups, row []*selector, b *fit.Budget) (fit.Alternative, error) {
	matching, err := filterDevices(row, n.Driver, groups.samples, b)
	if err != nil {
		return fit.Alternative{}, err
	}
	alternative := fit.Alternative{Name: a.name, Description: a.description(), Candidates: fit.NewSet(len(n.Devices)), Count: a.count}
	for i, d := range groups.samples {
		if !matching.Has(i) {
			continue
		}
		shape := n.Fit.Devices[groups.members[i][0]].Use.Shape
		if ok, err := a.allows(d, shape); err != nil {
			return fit.Alternative{}, err
		} else if !ok {
			continue
		}
		var share gpu.Share
		if shape.Shared() {
			if share, err = a.shareOf(d, n.Driver); err != nil {
				return fit.Alternative{}, err
			}
			if alternative.Shares == nil {
				alternative.Shares = make([]gpu.Share, len(n.Devices))
			}
		}
		for _, device := range groups.members[i] {
			alternative.Candidates.Add(device)
			if shape.Shared() {
				alternative.Shares[device] = share
			}
		}
	}
	return alternative, nil
}

// allows reports whether the device in the shape, if it is free, serves the alternative. An error means that fit does not support
// the device.
func (a *alternative) allows(d *resourceapi.Device, shape gpu.Shape) (bool, error) {
	if err := errors.Join(unsupportedDevice(d), shapeMismatch(d, shape)); err != nil {
		return false, err
	}
	ok, err := a.capacityFits(d)
	return ok && a.tolerates(d), err
}

// tolerates reports whether every taint of the device that keeps pods away is tolerated.
func (a *alternative) tolerates(d *resourceapi.Device) bool {
	for _, taint := range d.Taints {
		switch taint.Effect {
		case resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute:
			if !a.toleratesTaint(taint) {
				return false
			}
		case resourceapi.DeviceTaintEffectNone:
		}
	}
	return true
}

func (a *alternative) toleratesTaint(taint resourceapi.DeviceTaint) bool {
	for _, toleration := range a.tolerations {
		if resourceclaim.ToleratesTaint(toleration, taint) {
			return true
		}
	}
	return false
}

// unsupportedDevice returns why fit does not support the device, nil if it does. It does not name the device, since the
// result is shared by equal devices.
func unsupportedDevice(d *resourceapi.Device) error {
	switch {
	case len(d.BindingConditions) > 0 || len(d.BindingFailureConditions) > 0:
		return errors.New("device has binding conditions")
	case d.BindsToNode != nil:
		return errors.New("device binds to the node")
	case d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil:
		return errors.New("device selects nodes")
	case len(d.NodeAllocatableResources) > 0:
		return errors.New("device uses resources of the node")
	}
	return nil
}

// shapeMismatch returns why fit does not support the device in the shape, nil if it does.
func shapeMismatch(d *resourceapi.Device, shape gpu.Shape) error {
	switch {
	case shape == gpu.Monitor:
		return errors.New("monitor device")
	case isShared(d) != shape.Shared():
		return fmt.Errorf("device of shape %v has allowMultipleAllocations %t", shape, isShared(d))
	}
	return nil
}

// unsupportedSlice returns why fit does not support the devices of the ResourceSlice, nil if it does.
func unsupportedSlice(slice *resourceapi.ResourceSlice) error {
	if len(slice.Spec.SkipNodeOperations) > 0 {
		return delegatef("slice %s: skips node operations", slice.Name)
	}
	if slice.Spec.PerDeviceNodeSelection != nil {
		return delegatef("slice %s: selects nodes per device", slice.Name)
	}
	for i := range slice.Spec.Devices {
		for j := range slice.Spec.Devices[i].ConsumesCounters {
			if len(slice.Spec.Devices[i].ConsumesCounters[j].CompatibilityGroups) > 0 {
				return delegatef("slice %s: has compatibility groups", slice.Name)
			}
		}
	}
	return nil
}
