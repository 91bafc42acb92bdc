// Package cluster connects the verbs of the CLI to a cluster: kubectl's flags, clients, lists of objects, and errors
// with what to do.
package cluster
