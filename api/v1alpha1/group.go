package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group of this package.
var GroupVersion = schema.GroupVersion{Group: "tessera.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds that the API server serves.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ClusterPolicy{}, &ClusterPolicyList{}, &NVIDIADriver{}, &NVIDIADriverList{}, &GPUNode{}, &GPUNodeList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
