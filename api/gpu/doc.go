// Package gpu is the model of NVIDIA GPUs that every part of Tessera shares: what a GPU can hold
// (Geometry), what it holds now (Occupancy), what may be handed out (Device), how GPUs are wired
// (Link), what a node looks like (Node) and how its GPUs are (Health).
//
// "Does it fit, where, what is left" is answered here and nowhere else. Everything is a value:
// functions take values and return values, keep no state, do no I/O and are safe for concurrent
// use as long as a Geometry is not changed after it was built. The package imports only the
// standard library.
package gpu
