// Package controllertest has a cluster of GPU nodes for the tests of the controller: a fake API server with the indexes of the cache, and objects in it.
package controllertest

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
)

// Namespace is the installer's.
const Namespace = "tessera-system"

// Cluster is a cluster whose API server counts writes and reads of ResourceSlices.
type Cluster struct {
	*testing.T
	client.WithWatch
	Events *events.FakeRecorder
	// Writes counts patches, SliceLists the lists of ResourceSlices.
	Writes, SliceLists int
}

// NewCluster returns a cluster with a ClusterPolicy and these nodes of two H100 each, with their agents and ResourceSlices, and more objects.
func NewCluster(t *testing.T, spec v1alpha1.ClusterPolicySpec, nodes []*v1alpha1.GPUNode, more ...client.Object) *Cluster {
	t.Helper()
	const manyEvents = 100
	c := &Cluster{T: t, Events: events.NewFakeRecorder(manyEvents)}
	objects := append(more, &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}, Spec: spec})
	for _, node := range nodes {
		objects = append(objects, node, ServingNode(node.Name), AgentPod(node.Name))
		objects = append(objects, ResourceSlices(t, node.Name)...)
	}
	c.WithWatch = interceptor.NewClient(NewClient(t, objects...), interceptor.Funcs{
		List: func(ctx context.Context, base client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, is := list.(*resourceapi.ResourceSliceList); is {
				c.SliceLists++
			}
			return base.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, base client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			c.Writes++
			return base.Patch(ctx, o, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, base client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			c.Writes++
			return base.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
	return c
}

// Node reads a Node.
func (c *Cluster) Node(name string) *corev1.Node {
	c.Helper()
	node := &corev1.Node{}
	if err := c.Get(c.Context(), client.ObjectKey{Name: name}, node); err != nil {
		c.Fatal(err)
	}
	return node
}

// GPUNode reads a GPUNode.
func (c *Cluster) GPUNode(name string) *v1alpha1.GPUNode {
	c.Helper()
	node := &v1alpha1.GPUNode{}
	if err := c.Get(c.Context(), client.ObjectKey{Name: name}, node); err != nil {
		c.Fatal(err)
	}
	return node
}

// DrainEvents returns the Events recorded since the last call.
func (c *Cluster) DrainEvents() []string {
	var all []string
	for {
		select {
		case e := <-c.Events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// NewClient returns a client of a fake API server with these objects, with the indexes of the cache and the status subresources.
func NewClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	return builder(t, objects).WithStatusSubresource(&v1alpha1.GPUNode{}, &v1alpha1.ClusterPolicy{}, &v1alpha1.NVIDIADriver{}).
		WithIndex(&resourceapi.ResourceSlice{}, resourceapi.ResourceSliceSelectorNodeName, func(o client.Object) []string {
			slice, ok := o.(*resourceapi.ResourceSlice)
			if !ok || slice.Spec.NodeName == nil {
				return nil
			}
			return []string{*slice.Spec.NodeName}
		}).
		WithIndex(&corev1.Pod{}, informers.IndexPodNode, informers.PodNodes).
		WithIndex(&resourceapi.ResourceClaim{}, informers.IndexClaimPool, informers.ClaimPools).Build()
}

// NewPlainClient returns a client of a fake API server with these objects, without indexes and subresources.
func NewPlainClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	return builder(t, objects).Build()
}

func builder(t *testing.T, objects []client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
}

// Policies are a ClusterPolicy and an NVIDIADriver named own.
type Policies struct {
	Spec   v1alpha1.ClusterPolicySpec
	Driver v1alpha1.NVIDIADriverSpec
}

// Catalog returns their catalog.
func (p Policies) Catalog() *catalog.Catalog {
	drivers := []v1alpha1.NVIDIADriver{{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: p.Driver}}
	return catalog.New(&v1alpha1.ClusterPolicy{Spec: p.Spec}, drivers)
}

// InPool selects the nodes of a pool.
func InPool(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}}
}

// NodeInPool returns a bare node of a pool.
func NodeInPool(pool string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"pool": pool}}}
}
