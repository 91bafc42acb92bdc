// Package containerd reads containerd 1.7's configuration as that daemon does, and edits it without losing a line of it.
//
// Two of its rules decide everything here (services/server/config in containerd 1.7): files that are imported come after those that import them, breadth
// first; and a file that has a section of a plugin replaces the section of the same plugin in all files before it, key by key nothing is merged. A drop-in
// that enables CDI must therefore carry the whole section of the CRI plugin.
package containerd
