// Package explain implements the verb explain: the node and devices that a pod would get, or why no node fits. It runs the scheduler's code with
// Tessera's plugin on the current objects of the API server and writes nothing.
package explain
