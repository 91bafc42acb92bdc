// Package doctor is the verb doctor: node by node, what is wrong with GPUs and with what serves them, since when, which pods suffer, what
// is being done and what to do.
//
// It judges what the cluster says: nodes, ResourceSlices, ResourceClaims, pods, DeviceTaintRules and, where the installer is, GPUNodes
// and ClusterPolicy. It asks no hardware and changes nothing.
package doctor
