// Package controller runs the installer: it connects the reconcilers of policies and nodes with one cache and one set of clients.
//
// The policy reconciler writes the objects of the cluster, derives which driver each node is to have, and grants it when the rollout permits. The node
// reconciler brings one node to what it has been granted and remediates its GPUs. Both decide nothing themselves (see installer/phase, installer/rollout
// and installer/remediation), and keep nothing in memory that must survive a restart: that is in the GPUNodes.
//
// Everything is read from the cache except pods of users and ResourceSlices, which are read only for nodes whose GPUs are taken out of service or have
// faults. Nothing is written that exists already, so in a cluster without changes the only requests are those for the lease.
package controller
