// Package smi does what NVML's public functions cannot: it sets the time-slice class of a GPU and resets GPUs, through the driver's own
// nvidia-smi. That program is the only one that the package runs.
package smi
