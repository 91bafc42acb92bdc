// Package unload takes the kernel modules of a former driver container out of the kernel, and its root off the host, so that the next driver finds
// a clean machine. What is in use stays, and the users are named: nothing is forced.
package unload
