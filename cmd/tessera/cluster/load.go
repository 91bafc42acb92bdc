package cluster

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	list, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, ExplainError("list the ResourceSlices", err)
	}
	return slices.DeleteFunc(list.Items, func(s resourceapi.ResourceSlice) bool {
		return !slices.Contains(c.Drivers, s.Spec.Driver)
	}), nil
}

// ListClaims returns the ResourceClaims of the namespace that the label selector selects. An empty namespace is all namespaces, an empty selector
// selects all claims.
func (c *Cluster) ListClaims(ctx context.Context, namespace, selector string) ([]resourceapi.ResourceClaim, error) {
	list, err := c.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, ExplainError("list the ResourceClaims"+in(namespace), err)
	}
	return list.Items, nil
}

// ListClasses returns the DeviceClasses.
func (c *Cluster) ListClasses(ctx context.Context) ([]resourceapi.DeviceClass, error) {
	list, err := c.Client.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, ExplainError("list the DeviceClasses", err)
	}
	return list.Items, nil
}

// ListPods returns the pods of the namespace; of all namespaces when it is empty.
func (c *Cluster) ListPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, ExplainError("list the pods"+in(namespace), err)
	}
	return list.Items, nil
}

// in returns the part of an error message that names the namespace.
func in(namespace string) string {
	if namespace == "" {
		return " of all namespaces"
	}
	return " in " + namespace
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
