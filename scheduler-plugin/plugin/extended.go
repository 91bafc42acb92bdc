package plugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// backed returns the extended resources that the pod asks for and that a DeviceClass backs, in order.
func (p *Plugin) backed(pod *corev1.Pod) []corev1.ResourceName {
	if !p.features.EnableDRAExtendedResource {
		return nil
	}
	var names []corev1.ResourceName
	resolver := p.shared.manager.DeviceClassResolver()
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name, quantity := range list[i].Resources.Requests {
				if !quantity.IsZero() && schedutil.IsDRAExtendedResourceName(name) && resolver.GetDeviceClass(name) != nil {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// extendedClaim returns the claim that the in-tree plugin makes for the extended resources on a node where
// no device plugin offers them. What an init container needs may be what another container uses later;
// that is left to the in-tree plugin.
func (p *Plugin) extendedClaim(pod *corev1.Pod, backed []corev1.ResourceName) (*resourceapi.ResourceClaim, error) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "extended-resources"}}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range containers {
		requests, err := p.extendedRequests(&containers[i], i, backed)
		if err != nil {
			return nil, err
		}
		if short := i < len(pod.Spec.InitContainers) && !sidecar(&containers[i]); short && len(requests) > 0 {
			return nil, fmt.Errorf("init container %s asks for devices: %w", containers[i].Name, requirements.ErrDelegate)
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, requests...)
	}
	slices.SortFunc(claim.Spec.Devices.Requests, func(a, b resourceapi.DeviceRequest) int { return strings.Compare(a.Name, b.Name) })
	return claim, nil
}

// extendedRequests returns what the container at the position asks for, one request per resource.
func (p *Plugin) extendedRequests(c *corev1.Container, position int, backed []corev1.ResourceName) ([]resourceapi.DeviceRequest, error) {
	var requests []resourceapi.DeviceRequest
	for i, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
		if !slices.Contains(backed, name) {
			continue
		}
		quantity := c.Resources.Requests[name]
		count, whole := quantity.AsInt64()
		class := p.shared.manager.DeviceClassResolver().GetDeviceClass(name)
		switch {
		case !whole || class == nil:
			return nil, fmt.Errorf("container %s asks for %s of %s: %w", c.Name, quantity.String(), name, requirements.ErrDelegate)
		case count == 0:
			continue
		}
		requests = append(requests, resourceapi.DeviceRequest{
			Name: fmt.Sprintf("container-%d-request-%d", position, i),
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
			},
		})
	}
	return requests, nil
}

func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// special returns the claims that stand for the pod's extended resources already, from an earlier attempt.
func (p *Plugin) special(pod *corev1.Pod) ([]*resourceapi.ResourceClaim, error) {
	objects, err := p.shared.special.ByIndex(specialIndex, string(pod.UID))
	if err != nil {
		return nil, fmt.Errorf("find the claim for extended resources: %w", err)
	}
	var claims []*resourceapi.ResourceClaim
	for _, object := range objects {
		observed, ok := object.(*resourceapi.ResourceClaim)
		if !ok {
			continue
		}
		claim, err := p.shared.manager.ResourceClaims().Get(observed.Namespace, observed.Name)
		if err == nil {
			claims = append(claims, claim)
		}
	}
	return claims, nil
}

// offered reports whether the node, or nil any node, has a device plugin that offers one of the resources.
func (p *Plugin) offered(backed []corev1.ResourceName, node fwk.NodeInfo) bool {
	return slices.ContainsFunc(backed, func(name corev1.ResourceName) bool {
		if node == nil {
			return p.shared.offers.has(name)
		}
		return node.GetAllocatable().GetScalarResources()[name] != 0
	})
}
