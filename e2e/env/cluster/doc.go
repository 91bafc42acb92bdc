// Package cluster installs the product in a lab: fake GPUs in the nodes, the images, and deployments/ applied as
// shipped, except for the roots in the node configuration. The demo and the suites use it.
package cluster
