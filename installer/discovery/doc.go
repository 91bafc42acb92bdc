// Package discovery tells the cluster what a node is: its GPUs, kernel, operating system, firmware, drivers and runtime. It runs on every node that may have
// a GPU, needs nothing but to read, creates the GPUNode of a node that has one, and owns its status.hardware.
package discovery
