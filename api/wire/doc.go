// Package wire converts between the model of package gpu and the Kubernetes API resource.k8s.io/v1: Encode turns a gpu.Node
// into the contents of its ResourceSlices, Read is the inverse for readers without access to the hardware, and Decode returns
// the device that an allocation result names.
//
// All functions are pure and deterministic: equal nodes encode to equal pools, so that a publisher can compare a pool with the
// published one. They are safe for concurrent use. The limits that the API server enforces are respected here; attribute.go has
// the names of all attributes, capacities and counters.
//
// Sources: KEP-4381 (structured parameters), KEP-4815 (partitionable devices), KEP-5075 (consumable capacity), KEP-5055 (device
// taints).
package wire
