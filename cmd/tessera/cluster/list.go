package cluster

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// ListNodes returns the nodes that the label selector selects; all nodes when it is empty.
func (c *Cluster) ListNodes(ctx context.Context, selector string) ([]corev1.Node, error) {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, ExplainError("list the nodes", err)
	}
	return list.Items, nil
}

// NodeFilter returns a function that reports whether the label selector selects the node with a name. An empty selector selects every node, without a
// request.
func (c *Cluster) NodeFilter(ctx context.Context, selector string) (func(name string) bool, error) {
	if selector == "" {
		return func(string) bool { return true }, nil
	}
	nodes, err := c.ListNodes(ctx, selector)
	if err != nil {
		return nil, err
	}
	selected := sets.New[string]()
	for i := range nodes {
		selected.Insert(nodes[i].Name)
	}
	return selected.Has, nil
}

// ListRules returns the DeviceTaintRules; empty when the API server does not serve them.
func (c *Cluster) ListRules(ctx context.Context) ([]resourceapi.DeviceTaintRule, error) {
	list, err := c.Client.ResourceV1().DeviceTaintRules().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, ExplainError("list the DeviceTaintRules", err)
	}
	return list.Items, nil
}

// ListLeases returns the leases in Tessera's namespace, with which replicas elect a leader.
func (c *Cluster) ListLeases(ctx context.Context) ([]coordinationv1.Lease, error) {
	namespace, err := c.SystemNamespace(ctx)
	if err != nil {
		return nil, err
	}
	list, err := c.Client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, ExplainError("list the leases"+in(namespace), err)
	}
	return list.Items, nil
}

// ListGPUNodes returns the GPUNodes; empty where their CRD is not installed.
func (c *Cluster) ListGPUNodes(ctx context.Context) ([]v1alpha1.GPUNode, error) {
	var list v1alpha1.GPUNodeList
	err := c.listCustom(ctx, "gpunodes", &list)
	return list.Items, err
}

// ListPolicies returns the ClusterPolicies; empty where their CRD is not installed.
func (c *Cluster) ListPolicies(ctx context.Context) ([]v1alpha1.ClusterPolicy, error) {
	var list v1alpha1.ClusterPolicyList
	err := c.listCustom(ctx, "clusterpolicies", &list)
	return list.Items, err
}

// listCustom lists the objects of one of Tessera's CRDs into a list type; empty where the CRD is not installed.
func (c *Cluster) listCustom(ctx context.Context, resource string, into any) error {
	if c.Dynamic == nil {
		return nil
	}
	found, err := c.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(resource)).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return ExplainError("list the "+resource, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), into); err != nil {
		return fmt.Errorf("read the %s: %w", resource, err)
	}
	return nil
}
