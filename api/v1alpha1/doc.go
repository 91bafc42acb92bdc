// Package v1alpha1 is the API group tessera.dev/v1alpha1: what an administrator decides. NodeConfig is
// the file that configures the node agent.
//
// A value that Load or Default returned is complete and valid; nobody checks it again.
package v1alpha1
