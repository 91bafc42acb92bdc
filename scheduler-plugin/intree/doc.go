// Package intree is what the in-tree plugin DynamicResources sees of the cluster: one node, with the devices
// in question, in the place of everything. The in-tree plugin stays the judge of every allocation, at a
// cost that does not depend on the size of the cluster.
package intree
