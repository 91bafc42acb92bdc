// Package fleet simulates fleets of equal MIG GPUs under placement policies, without a cluster. Whether a
// placement fits is decided by api/gpu, evaluated once for every possible state of a GPU.
//
// A policy chooses among the distinct states of GPUs, not among GPUs, so that a step costs the same for a
// hundred GPUs and for a thousand.
package fleet
