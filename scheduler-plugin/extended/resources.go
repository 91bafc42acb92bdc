package extended

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Resources answers what pods require as extended resources. It is safe for concurrent use.
type Resources struct {
	manager fwk.SharedDRAManager
	enabled bool
	// claims is the informer's store of claims, indexed by claimIndex.
	claims cache.Indexer
	offers *offers
}

// NewResources returns the extended resources of the manager's classes, none if the feature is disabled. It is called
// before the informer of claims starts, and once per informer.
func NewResources(manager fwk.SharedDRAManager, claims cache.SharedIndexInformer, enabled bool) (*Resources, error) {
	if err := claims.AddIndexers(cache.Indexers{claimIndex: podOfClaim}); err != nil {
		return nil, fmt.Errorf("index the claims for extended resources (profiles of one scheduler need one Factory): %w", err)
	}
	return &Resources{manager: manager, enabled: enabled, claims: claims.GetIndexer(), offers: newOffers()}, nil
}

// NodeHandler returns the handler for the informer of nodes.
func (r *Resources) NodeHandler() cache.ResourceEventHandler { return r.offers.handler() }

// Requested returns the extended resources that the pod requests and that a DeviceClass backs, in order.
func (r *Resources) Requested(pod *corev1.Pod) []corev1.ResourceName {
	if !r.enabled {
		return nil
	}
	var names []corev1.ResourceName
	resolver := r.manager.DeviceClassResolver()
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

// OfferedOn reports whether a device plugin offers one of the resources on the node.
func (r *Resources) OfferedOn(node fwk.NodeInfo, names []corev1.ResourceName) bool {
	return slices.ContainsFunc(names, func(name corev1.ResourceName) bool {
		return node.GetAllocatable().GetScalarResources()[name] != 0
	})
}

// OfferedAnywhere reports whether a device plugin offers one of the resources on any node.
func (r *Resources) OfferedAnywhere(names []corev1.ResourceName) bool {
	return slices.ContainsFunc(names, r.offers.has)
}

// ClaimFor returns the claim that the in-tree plugin creates for the resources on a node where no device plugin offers
// them. The claim exists only in memory. An error wraps requirements.ErrDelegate if an init container requests
// devices: the in-tree plugin lets containers that run later use the same devices.
func (r *Resources) ClaimFor(pod *corev1.Pod, names []corev1.ResourceName) (*resourceapi.ResourceClaim, error) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "extended-resources"}}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range containers {
		requests, err := r.requestsOf(&containers[i], i, names)
		if err != nil {
			return nil, err
		}
		if ends := i < len(pod.Spec.InitContainers) && !isSidecar(&containers[i]); ends && len(requests) > 0 {
			return nil, fmt.Errorf("init container %s requests devices: %w", containers[i].Name, requirements.ErrDelegate)
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, requests...)
	}
	slices.SortFunc(claim.Spec.Devices.Requests, func(a, b resourceapi.DeviceRequest) int { return strings.Compare(a.Name, b.Name) })
	return claim, nil
}

// requestsOf returns the requests of the container at the position in the pod, one per resource. Names and order are
// those of the in-tree plugin.
func (r *Resources) requestsOf(c *corev1.Container, position int, names []corev1.ResourceName) ([]resourceapi.DeviceRequest, error) {
	var requests []resourceapi.DeviceRequest
	for i, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
		if !slices.Contains(names, name) {
			continue
		}
		quantity := c.Resources.Requests[name]
		count, whole := quantity.AsInt64()
		class := r.manager.DeviceClassResolver().GetDeviceClass(name)
		switch {
		case !whole || class == nil:
			return nil, fmt.Errorf("container %s requests %s of %s: %w", c.Name, quantity.String(), name, requirements.ErrDelegate)
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

// isSidecar reports whether an init container keeps running.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// ExistingClaims returns the claims that an earlier attempt created for the pod's extended resources. These are the ones
// that the in-tree plugin deletes: it ignores claims for other pods, and all of them if the pod requests no such resource.
func (r *Resources) ExistingClaims(pod *corev1.Pod) ([]*resourceapi.ResourceClaim, error) {
	if len(r.Requested(pod)) == 0 {
		return nil, nil
	}
	objects, err := r.claims.ByIndex(claimIndex, podKey(pod.Name, pod.UID))
	if err != nil {
		return nil, fmt.Errorf("find the claim for extended resources: %w", err)
	}
	var claims []*resourceapi.ResourceClaim
	for _, object := range objects {
		observed, ok := object.(*resourceapi.ResourceClaim)
		if !ok {
			continue
		}
		// The manager has the newest version: it may have assumed an allocation.
		claim, err := r.manager.ResourceClaims().Get(observed.Namespace, observed.Name)
		if err == nil {
			claims = append(claims, claim)
		}
	}
	return claims, nil
}

// claimIndex is the index of claims for extended resources by the podKey of their pod.
const claimIndex = "tesseraExtendedResourceClaims"

// podKey returns the key of a pod in claimIndex. The in-tree plugin compares the name of the owner as well as its UID.
func podKey(name string, uid types.UID) string { return name + "/" + string(uid) }

// podOfClaim returns the key of the pod for whose extended resources the claim was created.
func podOfClaim(object any) ([]string, error) {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok || claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" {
		return nil, nil
	}
	if owner := metav1.GetControllerOf(claim); owner != nil {
		return []string{podKey(owner.Name, owner.UID)}, nil
	}
	return nil, nil
}
