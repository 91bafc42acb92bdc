// Package publish keeps the node's ResourceSlices in the API server equal to the inventory.
//
// Package api/wire encodes the pool, and Kubernetes' resourceslice controller writes and repairs the ResourceSlices.
// This package connects the two: ResourceSlices are written only on a change, failed writes are retried within seconds,
// and ResourceSlices that other clients delete, as kubelet does when it restarts, are created again.
package publish
