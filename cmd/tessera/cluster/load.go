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

// State is what a cluster says about GPUs at one moment, as far as it was asked for.
type State struct {
	// Drivers are the names of the DRA drivers that are meant.
	Drivers []string
	Slices  []resourceapi.ResourceSlice
	Claims  []resourceapi.ResourceClaim
	Classes []resourceapi.DeviceClass
	Pods    []corev1.Pod
	Nodes   []corev1.Node
	Rules   []resourceapi.DeviceTaintRule
	Leases  []coordinationv1.Lease
	// GPUNodes and Policies are the installer's: none where it is not installed.
	GPUNodes []v1alpha1.GPUNode
	Policies []v1alpha1.ClusterPolicy
}

// ListSlices returns the ResourceSlices of the drivers that are meant.
func (c *Cluster) ListSlices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Explain("list the ResourceSlices", err)
	}
	return slices.DeleteFunc(list.Items, func(s resourceapi.ResourceSlice) bool {
		return !slices.Contains(c.Drivers, s.Spec.Driver)
	}), nil
}

// ListClaims returns the ResourceClaims of the namespace; of all when it is empty.
func (c *Cluster) ListClaims(ctx context.Context, namespace string) ([]resourceapi.ResourceClaim, error) {
	list, err := c.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Explain("list the ResourceClaims"+in(namespace), err)
	}
	return list.Items, nil
}

// ListClasses returns the DeviceClasses.
func (c *Cluster) ListClasses(ctx context.Context) ([]resourceapi.DeviceClass, error) {
	list, err := c.Client.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Explain("list the DeviceClasses", err)
	}
	return list.Items, nil
}

// ListPods returns the pods of the namespace; of all when it is empty.
func (c *Cluster) ListPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Explain("list the pods"+in(namespace), err)
	}
	return list.Items, nil
}

func in(namespace string) string {
	if namespace == "" {
		return " of all namespaces"
	}
	return " in " + namespace
}

// Readings returns what the slices say, by pool.
func (s State) Readings() []wire.Reading { return wire.Read(s.Slices) }

// ClaimNames returns the names of the claims in its namespace that the pod uses: those that it names,
// those made for it from templates, and the one made for its extended resources.
func ClaimNames(p corev1.Pod) []string {
	var names []string
	for _, used := range p.Spec.ResourceClaims {
		if used.ResourceClaimName != nil {
			names = append(names, *used.ResourceClaimName)
		}
	}
	for _, made := range p.Status.ResourceClaimStatuses {
		if made.ResourceClaimName != nil {
			names = append(names, *made.ResourceClaimName)
		}
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
