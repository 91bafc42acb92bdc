// Package doctor implements the verb doctor: for each node with GPUs it reports faults, affected pods, the status of the remediation
// and the next step.
//
// Its input is what the API server has: nodes, ResourceSlices, ResourceClaims, pods, leases, DeviceTaintRules and, where the installer
// runs, GPUNodes and the ClusterPolicy. It reads no hardware and writes nothing.
package doctor
