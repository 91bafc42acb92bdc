// Package cdi writes the Container Device Interface specs through which a container runtime gives
// containers their devices.
//
// There are two kinds of specs. The common one holds what every container with a device needs: the
// driver's files, the control nodes and the hooks. It stands at the level of the spec, which a runtime
// applies once per container, however many claims the container has. Each claim has a small spec of
// its own with the device nodes of its devices. Both are functions of what package driverroot read and
// of the prepared devices; only Specs touches files.
package cdi
