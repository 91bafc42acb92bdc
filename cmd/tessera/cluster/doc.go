// Package cluster is how the verbs of the CLI reach a cluster and what they read of it: flags as kubectl
// takes them, a client, lists, and errors that say what to do.
package cluster
