// Package driverroot reads what an installed NVIDIA driver consists of, as a container needs it: the
// libraries and the links beside them, programs, firmware, settings, sockets, control device nodes,
// and the numbers under which the kernel knows its devices.
//
// Scan reads all of it into a Driver, a value that does not change afterwards. Roots.Fingerprint tells
// cheaply whether a Driver that was read before still describes the host. Nothing is cached in the
// package and nothing on the host is written; everything is safe for concurrent use.
//
// The process that scans may see the host through a mount such as /host. Every host path in a Driver
// is the path on the host itself, as a container runtime will look it up.
package driverroot
