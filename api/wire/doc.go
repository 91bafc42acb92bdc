// Package wire translates between the model and the resource API: a gpu.Node becomes the content of
// its pool of ResourceSlices (Encode), and a name in an allocation result becomes the device that it
// stands for (Decode).
//
// Everything is a pure function of its arguments, in a fixed order: equal nodes encode to equal pools,
// so that a publisher can compare. The limits that the API server enforces are kept here; the names of
// all attributes, capacities and counters stand in attribute.go.
package wire
