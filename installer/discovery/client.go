package discovery

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Connect returns clients for Nodes and GPUNodes. The configuration is not modified.
func Connect(access *rest.Config) (Nodes, GPUNodes, error) {
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, nil, fmt.Errorf("load the in-cluster configuration: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, fmt.Errorf("register the GPUNode API: %w", err)
	}
	own := rest.CopyConfig(access)
	own.GroupVersion, own.APIPath = &v1alpha1.GroupVersion, "/apis"
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	gpuNodes, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, nil, fmt.Errorf("create the GPUNode client: %w", err)
	}
	return client.CoreV1().Nodes(), gentype.NewClientWithList("gpunodes", gpuNodes, runtime.NewParameterCodec(scheme), "",
		func() *v1alpha1.GPUNode { return &v1alpha1.GPUNode{} }, func() *v1alpha1.GPUNodeList { return &v1alpha1.GPUNodeList{} }), nil
}
