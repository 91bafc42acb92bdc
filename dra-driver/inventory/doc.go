// Package inventory keeps the current picture of the node's GPUs.
//
// One goroutine owns it: it looks whether a driver was installed, changed or removed, reads the
// hardware again after every change that it is told of and from time to time, decides which memory
// slices are withheld, and puts the result out as a snapshot that anybody may read without waiting.
// A node without a driver is a node without GPUs, until the driver comes.
package inventory
