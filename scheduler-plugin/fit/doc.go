// Package fit chooses devices: of all that a node could give to a demand, those that leave the most for
// the demands to come, and it says why a node cannot give any. "Does it fit" itself is api/gpu's.
//
// Everything is a pure function of its arguments and safe for concurrent use; nothing here knows
// Kubernetes.
package fit
