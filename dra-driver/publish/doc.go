// Package publish keeps the node's ResourceSlices on the API server equal to what the inventory shows.
//
// Encoding is api/wire's, writing and repairing is the resourceslice controller's of Kubernetes; this
// package joins the two, so that something is written only when something changed, a write that fails
// is repeated within seconds, and slices that somebody else deletes, as kubelet does when it restarts,
// come back.
package publish
