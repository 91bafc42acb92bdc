package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// fieldManager is the field manager of applied objects.
const fieldManager = "tessera-e2e"

// objects reads and writes objects of any kind.
type objects struct {
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	dynamic dynamic.Interface
}

func newObjects(d discovery.DiscoveryInterface, dyn dynamic.Interface) *objects {
	return &objects{mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d)), dynamic: dyn}
}

// Apply applies the objects by server-side apply, in order. The namespace of a namespaced object defaults to default.
func (c *Cluster) Apply(ctx context.Context, list ...*unstructured.Unstructured) error {
	for _, object := range list {
		resource, err := c.objects.resource(object)
		if err != nil {
			return err
		}
		options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
		if _, err := resource.Apply(ctx, object.GetName(), object, options); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// Delete deletes the objects in reverse order. An absent object is not an error.
func (c *Cluster) Delete(ctx context.Context, list ...*unstructured.Unstructured) error {
	for i := len(list) - 1; i >= 0; i-- {
		resource, err := c.objects.resource(list[i])
		if err != nil {
			return err
		}
		background := metav1.DeletePropagationBackground
		err = resource.Delete(ctx, list[i].GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", list[i].GetKind(), list[i].GetName(), err)
		}
	}
	return nil
}

func (o *objects) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("find kind %s: %w", kind, err)
	}
	resource := o.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == "root" {
		return resource, nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return resource.Namespace(namespace), nil
}

// Decode returns all objects of a manifest.
func Decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode manifest: %w", err)
		}
		if len(object.Object) > 0 {
			list = append(list, object)
		}
	}
}
