// Package devnode makes the device nodes that the agent's own processes open: NVML in the agent, nvidia-smi, and the MPS daemons, which share the
// agent's /dev. It loads nvidia-uvm first, where it is not loaded: without it no CUDA program works.
//
// Containers need no node of the host, because CDI specs describe nodes completely.
package devnode
