package cluster

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// ListNodes returns the nodes that the label selector selects; all nodes when it is empty.
func (c *Cluster) ListNodes(ctx context.Context, selector string) ([]corev1.Node, error) {
	return listObjects[corev1.Node](ctx, c, query{"nodes", selector}, c.Client.CoreV1().Nodes())
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
	list, err := listObjects[resourceapi.DeviceTaintRule](ctx, c, query{what: "DeviceTaintRules"}, c.Client.ResourceV1().DeviceTaintRules())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return list, err
}

// ListLeases returns the leases in Tessera's namespace, with which replicas elect a leader.
func (c *Cluster) ListLeases(ctx context.Context) ([]coordinationv1.Lease, error) {
	namespace, err := c.SystemNamespace(ctx)
	if err != nil {
		return nil, err
	}
	return listObjects[coordinationv1.Lease](ctx, c, query{what: "leases" + in(namespace)}, c.Client.CoordinationV1().Leases(namespace))
}

// ListQuotas returns the ResourceQuotas of the namespace; of all namespaces when it is empty.
func (c *Cluster) ListQuotas(ctx context.Context, namespace string) ([]corev1.ResourceQuota, error) {
	return listObjects[corev1.ResourceQuota](ctx, c, query{what: "ResourceQuotas" + in(namespace)}, c.Client.CoreV1().ResourceQuotas(namespace))
}

// ListDeployments returns Tessera's Deployments in the namespace.
func (c *Cluster) ListDeployments(ctx context.Context, namespace string) ([]appsv1.Deployment, error) {
	return listObjects[appsv1.Deployment](ctx, c, query{"Deployments" + in(namespace), PartOfSelector}, c.Client.AppsV1().Deployments(namespace))
}

// ListDaemonSets returns Tessera's DaemonSets in the namespace.
func (c *Cluster) ListDaemonSets(ctx context.Context, namespace string) ([]appsv1.DaemonSet, error) {
	return listObjects[appsv1.DaemonSet](ctx, c, query{"DaemonSets" + in(namespace), PartOfSelector}, c.Client.AppsV1().DaemonSets(namespace))
}

// ListGPUNodes returns the GPUNodes; empty where their CRD is not installed.
func (c *Cluster) ListGPUNodes(ctx context.Context) ([]v1alpha1.GPUNode, error) {
	return listCustom[v1alpha1.GPUNode](ctx, c, "gpunodes")
}

// ListPolicies returns the ClusterPolicies; empty where their CRD is not installed.
func (c *Cluster) ListPolicies(ctx context.Context) ([]v1alpha1.ClusterPolicy, error) {
	return listCustom[v1alpha1.ClusterPolicy](ctx, c, "clusterpolicies")
}
