// Package hook has the CDI hooks that make an injected NVIDIA driver usable in a container, and installs the program
// that runs them.
//
// A container runtime runs a hook as createContainer: as root, in the container's mount namespace, before the
// container's root becomes "/". The root file system is under the control of the image's author, and other processes may
// change it while a hook runs. The hooks therefore access it only through handles: the kernel resolves every path inside
// the root, the last element is never followed where something is created, only the root's own mount is changed, special
// files and files of the kernel are never opened, sizes and the processor time are bounded, and nothing from the root is
// ever executed.
//
// The hooks are idempotent and may run for several containers concurrently; they share no state.
//
// One hook does nothing in the root file system: LimitMemory runs as createRuntime, in the namespaces of the runtime.
package hook
