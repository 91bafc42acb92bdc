// Package v1alpha1 is the API group tessera.dev/v1alpha1. NodeConfig is the file that configures the node agent; ClusterPolicy, NVIDIADriver
// and GPUNode are the objects of the installer.
//
// A NodeConfig that Load or Default returned is complete and valid. Callers do not validate it again.
//
// +kubebuilder:object:generate=true
// +groupName=tessera.dev
//
//go:generate go run ../../e2e/repo/generate/crds ../..
package v1alpha1
