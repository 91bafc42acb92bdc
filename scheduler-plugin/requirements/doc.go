// Package requirements evaluates the claims of a pod into what they require of a node (fit.Requirements).
//
// Claims are parsed with their DeviceClasses (parsedClaims), their CEL selectors are compiled (compiledClaims), and then
// evaluated on each node. Evaluating CEL is expensive, so results are cached: a visitor of the expression finds which
// attributes and capacities it reads (readSet), and devices that are equal in these have equal results. Nodes whose devices
// are equal in all of them (nodeDigests) have equal requirements.
//
// Claims that fit does not support return ErrDelegate, for all nodes or for one: the in-tree allocator decides there.
package requirements
