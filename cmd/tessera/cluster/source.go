package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// client is a client for one resource, such as the one for the pods of a namespace.
type client[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// query identifies a list of objects.
type query struct {
	// what are the objects in messages, such as "pods in demo". It is unique per client.
	what string
	// selector is a label selector; empty for all objects.
	selector string
}

// listObjects returns the objects of the query in order of namespace and name: from the API server or, in a cluster that Watched returned, from the cache
// of the query. The list is the caller's, its objects are shared and must not be modified. It is not nil without an error.
func listObjects[T any, L runtime.Object](ctx context.Context, c *Cluster, q query, from client[L]) ([]T, error) {
	var list []T
	var err error
	if c.caches != nil {
		list, err = cacheOf[T](c.caches, q, from).list(ctx)
	} else {
		list, err = requestObjects[T](ctx, q, from)
	}
	return list, ExplainError("list the "+q.what, err)
}

// requestObjects lists the objects of the query with one request.
func requestObjects[T any, L runtime.Object](ctx context.Context, q query, from client[L]) ([]T, error) {
	found, err := from.List(ctx, metav1.ListOptions{LabelSelector: q.selector})
	if err != nil {
		return nil, err
	}
	list := []T{}
	err = meta.EachListItem(found, func(object runtime.Object) error {
		item, err := decode[T](object)
		if err == nil {
			list = append(list, *item)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// decode returns the object as its Go type. That of a dynamic client is converted.
func decode[T any](object runtime.Object) (*T, error) {
	if typed, ok := any(object).(*T); ok {
		return typed, nil
	}
	fields, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("unexpected object of type %T", object)
	}
	item := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields.Object, item); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", fields.GetKind(), fields.GetName(), err)
	}
	return item, nil
}

// listCustom lists the objects of one of Tessera's CRDs; empty where the CRD is not installed.
func listCustom[T any](ctx context.Context, c *Cluster, resource string) ([]T, error) {
	if c.Dynamic == nil {
		return nil, nil
	}
	list, err := listObjects[T](ctx, c, query{what: resource}, c.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(resource)))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return list, err
}

// in returns the part of a query's name that names the namespace.
func in(namespace string) string {
	if namespace == "" {
		return " of all namespaces"
	}
	return " in " + namespace
}
