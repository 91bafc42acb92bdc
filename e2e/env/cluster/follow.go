package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// newKinds returns a client for the kinds of Kubernetes and Tessera.
func newKinds(config *rest.Config) (client.WithWatch, error) {
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), v1alpha1.AddToScheme(kinds)); err != nil {
		return nil, err
	}
	ctrllog.SetLogger(logr.Discard()) // it would complain, with a stack, that none is set
	c, err := client.NewWithWatch(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, fmt.Errorf("connect to the lab: %w", err)
	}
	return c, nil
}

// Follow calls f with every existing object of a kind and with each change, sequentially, until ctx ends or f returns
// true. list is a list of the kind. deleted reports that the object was deleted; object is then its last state.
func Follow[T client.Object](ctx context.Context, c *Cluster, list client.ObjectList, f func(object T, deleted bool) (done bool)) error {
	options := func(o metav1.ListOptions) *client.ListOptions { return &client.ListOptions{Raw: &o} }
	fresh := func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) } //nolint:forcetypeassert // a copy is of the same type
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all := fresh()
			return all, c.Kinds.List(ctx, all, options(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Kinds.Watch(ctx, fresh(), options(o))
		},
	}
	var kind T
	_, err := watchtools.UntilWithSync(ctx, lw, kind, nil, func(e watch.Event) (bool, error) {
		object, ok := e.Object.(T)
		return ok && f(object, e.Type == watch.Deleted), nil
	})
	if err != nil {
		return fmt.Errorf("follow %T: %w", kind, err)
	}
	return nil
}

// GPUNode returns the GPUNode with the name.
func (c *Cluster) GPUNode(ctx context.Context, name string) (*v1alpha1.GPUNode, error) {
	var node v1alpha1.GPUNode
	return &node, c.Kinds.Get(ctx, types.NamespacedName{Name: name}, &node)
}

// NodeState returns phase and step of a node, its driver, and reason and message, as text: "Upgrading Drain, 570.124.06 (Draining: ...)".
func (c *Cluster) NodeState(ctx context.Context, name string) (string, error) {
	n, err := c.GPUNode(ctx, name)
	if err != nil {
		return "", err
	}
	version := "no driver"
	if n.Status.Agent != nil && n.Status.Agent.DriverVersion != "" {
		version = n.Status.Agent.DriverVersion
	}
	place := strings.TrimSpace(fmt.Sprintf("%s %s", n.Status.Phase, n.Status.Step))
	return fmt.Sprintf("%s, %s (%s: %s)", place, version, n.Status.Reason, n.Status.Message), nil
}

// Policy returns the ClusterPolicy.
func (c *Cluster) Policy(ctx context.Context) (*v1alpha1.ClusterPolicy, error) {
	var policy v1alpha1.ClusterPolicy
	return &policy, c.Kinds.Get(ctx, types.NamespacedName{Name: v1alpha1.ClusterPolicyName}, &policy)
}

// EditPolicy reads, changes and updates the ClusterPolicy, as kubectl edit does.
func (c *Cluster) EditPolicy(ctx context.Context, edit func(*v1alpha1.ClusterPolicy)) error {
	policy, err := c.Policy(ctx)
	if err != nil {
		return err
	}
	before := policy.DeepCopy()
	edit(policy)
	return c.Kinds.Patch(ctx, policy, client.MergeFrom(before))
}
