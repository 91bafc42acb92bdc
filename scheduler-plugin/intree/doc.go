// Package intree runs instances of the in-tree plugin DynamicResources that see one node instead of the cluster. The
// in-tree allocator still decides every allocation, at a cost that does not depend on the size of the cluster.
package intree
