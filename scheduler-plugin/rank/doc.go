// Package rank keeps, for each recently used set of requirements, the nodes of the cluster in the order in which they
// serve it best. An event costs the nodes that it changed, and a pod the candidates that it considers. Neither depends
// on the size of the cluster.
package rank
