// Package discovery reports the hardware of a node: its GPUs, kernel, operating system, firmware, drivers and runtime. It runs on each node that may have
// a GPU, only reads the host, creates the GPUNode of a node with a GPU, and owns its status.hardware.
package discovery
