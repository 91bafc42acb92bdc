// Package topology evaluates sets of GPUs by the links between them.
//
// Inside a node, Wiring holds the strength of every link between two GPUs, and Tables holds, for every set of GPUs,
// how well the set communicates and what its GPUs can still offer to teams. A team is a request for several whole
// GPUs of one node. Across nodes, Clique compares NVLink domains for groups of pods.
//
// All values are immutable or filled lazily with equal results, so that all functions are safe for concurrent use.
package topology
