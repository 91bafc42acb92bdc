// Package verify tests the rules of this repository: allowed imports, the length of files,
// forbidden text, and that the manifests are valid and have the intended content.
//
// The package contains only tests. They read the tree through the go command and the file system
// and need neither root nor a cluster.
package verify
