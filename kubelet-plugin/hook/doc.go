// Package hook holds the CDI hooks that make an injected NVIDIA driver usable in a container, and the
// installation of the program that runs them.
//
// A container runtime runs a hook as createContainer: as root, in the container's mount namespace,
// before the container's root becomes "/". The root file system belongs to whoever built the image
// and may be changed by others while a hook runs. The hooks therefore touch it only through handles:
// every path is resolved inside the root by the kernel, the last element is never followed where
// something is made, special files are never opened, sizes are bounded, and nothing from the root is
// ever executed.
//
// The hooks are written to be run again and by several containers at once; they share no state.
package hook
