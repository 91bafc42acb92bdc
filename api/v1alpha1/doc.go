// Package v1alpha1 is the API group tessera.dev/v1alpha1: what an administrator decides. NodeConfig is
// the file that configures the node agent; ClusterPolicy, NVIDIADriver and GPUNode are the objects of the installer.
//
// A value that Load or Default returned is complete and valid; nobody checks it again.
//
// +kubebuilder:object:generate=true
// +groupName=tessera.dev
//
//go:generate go run ../../e2e/repo/generate/crds ../..
package v1alpha1
