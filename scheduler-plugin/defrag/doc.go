// Package defrag finds the fewest and cheapest moves that make room for a pod that no node has room for: the capacity is there, but in pieces. It is pure.
package defrag
