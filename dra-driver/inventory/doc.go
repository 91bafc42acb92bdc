// Package inventory keeps the current snapshot of the node's GPUs.
//
// One goroutine owns it: it detects whether a driver was installed, changed or removed, reads the hardware after each change that it is
// notified of and periodically, decides which memory slices are withheld, and publishes the result as a snapshot that can be read without
// waiting. A node without a driver is a node without GPUs until a driver is installed.
package inventory
