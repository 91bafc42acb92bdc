// Package index holds, for every node of the cluster, the GPUs that the node publishes and the devices that claims hold,
// from ResourceSlices, DeviceTaintRules, ResourceClaims and the allocations that the scheduler has not written yet.
//
// Events update it at a cost that depends on the nodes that they concern, not on the size of the cluster. Readers get
// immutable snapshots. All methods are safe for concurrent use. Objects that are passed in must not be changed afterwards.
package index
