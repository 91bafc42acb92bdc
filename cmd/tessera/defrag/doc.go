// Package defrag implements the verb defrag: the moves that make room for a pod that no node has room for. It runs the scheduler's code on a snapshot of the
// cluster and writes nothing.
package defrag
