// Package migrate is the verb that prints what was written for NVIDIA's GPU Operator as objects of ours, and lists what has no counterpart.
// It needs no cluster; installer/migrate decides.
package migrate
