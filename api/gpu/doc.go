// Package gpu models NVIDIA GPUs: what a GPU model can hold (Geometry), what one GPU holds now (Occupancy), which devices a
// node offers (Offer, Device), how GPUs are connected (Link), what a node contains (Node), and which faults its GPUs have
// (Health, Fault).
//
// The rules that decide whether a use fits on a GPU, where it is placed and what remains free exist only in this package. The
// scheduler plugin, the node agent and the published counters call it, so that their decisions are equal.
//
// All types are values: functions take values and return values, keep no state, perform no I/O, and are safe for concurrent
// use. The one exception is Geometry, which is shared by pointer and must not be changed after NewGeometry or UnmarshalJSON
// returned. The package imports only the standard library.
package gpu
