// Package monitoring decides when pods that monitor GPUs leave the node for a change of the MIG mode. The driver refuses the change while any other
// program has the GPU open (nvmlDeviceSetMigMode: NVML_ERROR_IN_USE), and monitoring has every GPU of the node open.
//
// The requests are part of status.agent of the GPUNode. The installer then removes the label tessera.dev/ready, by which monitoring is placed, as it does
// for a reset. Without an installer, the claim's message names the programs.
package monitoring
