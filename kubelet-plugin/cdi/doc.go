// Package cdi writes the Container Device Interface specs with which a container runtime injects devices into
// containers.
//
// There are two kinds of specs. The common spec has what every container with a device needs: the driver's files, the
// control nodes and the hooks. These are container edits of the whole spec, which a runtime applies once per container,
// regardless of the number of claims. Each claim has a small spec with the device nodes of its devices. Both specs are
// functions of the results of package driverroot and of the prepared devices; only Specs accesses files.
package cdi
