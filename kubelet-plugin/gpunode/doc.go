// Package gpunode reads the GPUNode of the node and reports the agent's part of its status.
//
// Only the leading agent runs a Controller. It watches the GPUNode, applies what its spec orders through package maintenance, and writes
// status.agent by server-side apply: what the hardware is, which faults it has, and how far maintenance and remedies are. The status is
// written only when it changes. Counts and times of last occurrence are not part of it, so that repeated errors cause no writes.
package gpunode
