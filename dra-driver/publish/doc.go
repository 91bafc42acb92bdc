// Package publish keeps the node's ResourceSlices in the API server equal to the inventory.
//
// Package api/wire encodes, Kubernetes' resourceslice controller writes and repairs; this package connects the two, so that ResourceSlices are
// written only when something has changed, failed writes are retried within seconds, and ResourceSlices that others delete, as kubelet does
// when it restarts, are created again.
package publish
