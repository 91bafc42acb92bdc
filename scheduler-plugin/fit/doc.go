// Package fit chooses devices: of all that a node could give to a demand, those that leave the most for
// the demands to come, and it says why a node cannot give any. "Does it fit" itself is api/gpu's.
//
// What a node leaves is measured twice. The value of a GPU (Kind.Value) counts its free MIG placements by
// their size, so that a placement costs what it makes impossible. The residual of a node (Wiring) counts
// the teams of 2, 4 and 8 GPUs that its idle GPUs can still form, by the bandwidth inside each. Both are
// looked up in tables that are made once per geometry and per pattern of links.
//
// Everything is a pure function of its arguments and safe for concurrent use; nothing here knows
// Kubernetes.
package fit
