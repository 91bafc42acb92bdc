// Package gpus implements the verb gpus: each node's GPUs with their use, their pods and their free capacity.
//
// Its input is what the API server has: ResourceSlices, allocated ResourceClaims, pods and, where the user may read them, GPUNodes.
// It reads no hardware.
package gpus
