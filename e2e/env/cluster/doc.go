// Package cluster puts the product into a lab: fake GPUs in the nodes, the images on them, and
// deployments/ applied as it is shipped, with nothing changed but the node configuration's roots. The
// demo and the suites stand on it.
package cluster
