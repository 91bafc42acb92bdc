// Package requirements turns the claims of a pod into what they ask of a node (fit.Demand): classes and
// selectors are evaluated against the published devices, taints and tolerations against each other.
//
// It says, too, when a claim asks for something that fit does not decide; the in-tree allocator decides
// that then, node by node.
package requirements
