// Package fit chooses devices: of all devices of a node that satisfy requirements, those that leave the most for later
// pods. It also explains why a node cannot satisfy them. Whether a use fits on a GPU is decided by api/gpu.
//
// What a node leaves is measured in two ways. The value of a GPU (Kind.Value) counts its free MIG placements by their
// size, so that a placement costs what it blocks. The residual of a node (topology.Tables) counts the teams of 2, 4 and
// 8 GPUs that its idle GPUs can still form, weighted by the bandwidth inside each. Both are looked up in tables that
// are computed once per geometry and per pattern of links.
//
// Everything is a pure function of its arguments, safe for concurrent use, and independent of Kubernetes.
package fit
