// Package rank keeps, for each demand that pods of the last while had, the nodes of the cluster in the
// order in which they serve it best. An event costs the nodes that it changed, a pod the candidates it
// looks at: neither costs the size of the cluster.
package rank
