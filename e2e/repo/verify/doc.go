// Package verify holds the laws of this repository as tests: what may import what, how long a file
// may be, what never stands in the tree, and that the manifests are valid and say what they should.
//
// The package has no code besides its tests. They read the tree through the go command and the file
// system and need neither root nor a cluster.
package verify
