package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
)

// mapsNodeResources reports whether a device that provides resources of its node can be allocated (feature gate DRANodeAllocatableResources, KEP-5517: alpha
// in Kubernetes 1.37, planned to be on by default in 1.38). Devices of Tessera never provide any.
//
// kube-scheduler adds what such devices provide to the assumed pod before Reserve, from the state that the in-tree plugin has of the chosen node
// (schedule_one.go, assume). The states of delegated nodes are in other places. While such devices are published, the in-tree plugin therefore handles
// alone the pods for which fit does not decide on every node (isForInTree).
func (p *Plugin) mapsNodeResources() bool {
	return p.features.EnableDRANodeAllocatableResources && p.shared.index.MapsNodeResources()
}

// isForInTree reports whether the in-tree plugin handles the pod of the attempt alone, because it may get devices that provide resources of their node.
func (p *Plugin) isForInTree(c *cycle) bool {
	return p.mapsNodeResources() && (c.order == nil || len(c.order.Delegated()) > 0)
}

// leaveToInTree leaves the pod to the in-tree plugin. The instance that has checked its claims has seen no devices, which matters only for devices that
// provide resources of their node.
func (p *Plugin) leaveToInTree(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.mapsNodeResources() {
		return nil, nil
	}
	return p.DynamicResources.PreFilter(ctx, cs, pod, nodes)
}

// withoutMapped returns the ResourceSlices without the devices that provide resources of their node, for a node that is delegated since PreFilter.
func (p *Plugin) withoutMapped(list []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	if !p.mapsNodeResources() {
		return list
	}
	kept := make([]*resourceapi.ResourceSlice, 0, len(list))
	for _, s := range list {
		if index.MapsNodeResources(s) {
			s = intree.WithoutDevices(s, func(d *resourceapi.Device) bool { return len(d.NodeAllocatableResources) > 0 })
		}
		kept = append(kept, s)
	}
	return kept
}
