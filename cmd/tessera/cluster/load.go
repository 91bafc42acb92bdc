package cluster

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// State is the objects of a cluster that the verbs read. A verb fills the lists that it needs.
type State struct {
	// Drivers are the names of the selected DRA drivers.
	Drivers []string
	// System is the namespace of Tessera's components.
	System  string
	Slices  []resourceapi.ResourceSlice
	Claims  []resourceapi.ResourceClaim
	Classes []resourceapi.DeviceClass
	Pods    []corev1.Pod
	Nodes   []corev1.Node
	Rules   []resourceapi.DeviceTaintRule
	Leases  []coordinationv1.Lease
	// GPUNodes and Policies are the installer's; empty where no installer runs.
	GPUNodes []v1alpha1.GPUNode
	Policies []v1alpha1.ClusterPolicy
}

// ListResourceSlices returns the ResourceSlices of the selected drivers.
func (c *Cluster) ListResourceSlices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := listObjects[resourceapi.ResourceSlice](ctx, c, query{what: "ResourceSlices"}, c.Client.ResourceV1().ResourceSlices())
	return slices.DeleteFunc(list, func(s resourceapi.ResourceSlice) bool { return !slices.Contains(c.Drivers, s.Spec.Driver) }), err
}

// ListClaims returns the ResourceClaims of the namespace that the label selector selects. An empty namespace is all namespaces, an empty selector
// selects all claims.
func (c *Cluster) ListClaims(ctx context.Context, namespace, selector string) ([]resourceapi.ResourceClaim, error) {
	return listObjects[resourceapi.ResourceClaim](ctx, c, query{"ResourceClaims" + in(namespace), selector}, c.Client.ResourceV1().ResourceClaims(namespace))
}

// ListClasses returns the DeviceClasses.
func (c *Cluster) ListClasses(ctx context.Context) ([]resourceapi.DeviceClass, error) {
	return listObjects[resourceapi.DeviceClass](ctx, c, query{what: "DeviceClasses"}, c.Client.ResourceV1().DeviceClasses())
}

// ListPods returns the pods of the namespace; of all namespaces when it is empty.
func (c *Cluster) ListPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	return listObjects[corev1.Pod](ctx, c, query{what: "pods" + in(namespace)}, c.Client.CoreV1().Pods(namespace))
}

// Readings returns the decoded ResourceSlices by pool.
func (s State) Readings() []wire.Reading { return wire.Read(s.Slices) }

// ClaimNames returns the names of the pod's claims, sorted: those that its spec names, those generated from templates, and the one
// generated for its extended resources.
func ClaimNames(p corev1.Pod) []string {
	var names []string
	for _, used := range p.Spec.ResourceClaims {
		if used.ResourceClaimName != nil {
			names = append(names, *used.ResourceClaimName)
		}
	}
	for _, generated := range p.Status.ResourceClaimStatuses {
		if generated.ResourceClaimName != nil {
			names = append(names, *generated.ResourceClaimName)
		}
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
