// Package containerd reads the configuration of containerd 1.7 and 2 like these daemons, and edits that of 1.7 without losing a line.
//
// Two rules of containerd 1.7 matter (services/server/config in containerd 1.7): imported files are loaded after the files that import them, breadth
// first; and the section of a plugin replaces the section of the same plugin from all earlier files, without merging keys. A drop-in that enables CDI
// must therefore contain the whole section of the CRI plugin.
package containerd
