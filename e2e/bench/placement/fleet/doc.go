// Package fleet simulates fleets of equal MIG GPUs under placement policies, without a cluster: whether a
// placement fits is what api/gpu says, asked once for every state that a GPU can be in.
//
// A policy chooses among the distinct states that GPUs are in, not among GPUs, so that a step costs the
// same for a hundred GPUs and for a thousand.
package fleet
