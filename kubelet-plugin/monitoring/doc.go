// Package monitoring decides when pods that monitor GPUs leave the node because the driver refuses something while they have the GPUs open: a change of the
// MIG mode (nvmlDeviceSetMigMode: NVML_ERROR_IN_USE), and with some drivers the destruction of a MIG device that no process uses (DCGM issue 276).
//
// The requests are part of status.agent of the GPUNode. The installer then removes the label tessera.dev/ready, by which monitoring is placed, as it does
// for a reset. Without an installer, the claim's message names the programs.
package monitoring
