// Package gpus is the verb gpus: every node's GPUs, what they are used as, by whom, and what is free.
//
// What it shows is what the cluster says: ResourceSlices, allocated ResourceClaims and pods. The hardware
// is not asked.
package gpus
