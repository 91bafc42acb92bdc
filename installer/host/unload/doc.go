// Package unload removes the kernel modules and the mounts of a previous driver container, so that the next driver starts on a clean host. Modules
// and mounts in use stay, and their users are reported: nothing is forced.
package unload
