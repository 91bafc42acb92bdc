package gpunode

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Client reads and writes GPUNodes.
type Client interface {
	List(ctx context.Context, options metav1.ListOptions) (*v1alpha1.GPUNodeList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*v1alpha1.GPUNode, error)
}

// NewClient returns a client of the API server. It does not modify access.
func NewClient(access *rest.Config) (Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register GPUNodes: %w", err)
	}
	own := rest.CopyConfig(access)
	own.GroupVersion = &v1alpha1.GroupVersion
	own.APIPath = "/apis"
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// The API server does not encode custom resources as protobuf.
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("create a client of GPUNodes: %w", err)
	}
	return gentype.NewClientWithList("gpunodes", client, runtime.NewParameterCodec(scheme), "",
		func() *v1alpha1.GPUNode { return &v1alpha1.GPUNode{} }, func() *v1alpha1.GPUNodeList { return &v1alpha1.GPUNodeList{} }), nil
}
