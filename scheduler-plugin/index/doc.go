// Package index knows, for every node of the cluster, what its GPUs are and what each of them holds: from
// ResourceSlices, ResourceClaims and the allocations that the scheduler has decided but not yet written.
//
// It follows events at a cost that depends on the nodes they touch, never on the size of the cluster, and
// hands out snapshots that nobody changes. All methods are safe for concurrent use.
//
// What a claim holds is never less than what kube-scheduler's own tracker of claims holds after the same
// events and calls: whatever is in flight, and beside it what was last assumed or observed. Objects that
// are handed in must not be changed any more.
package index
