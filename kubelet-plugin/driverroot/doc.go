// Package driverroot reads the parts of an installed NVIDIA driver that a container needs: the libraries and the links
// to them, programs, firmware, settings, sockets, control device nodes, and the device numbers of the kernel.
//
// Scan reads all of them into a Driver, an immutable value. Roots.Fingerprint detects at low cost whether a Driver still
// describes the host. The package has no cache and writes nothing on the host; everything is safe for concurrent use.
//
// The process that scans may have the host mounted at a path such as /host. Every host path in a Driver is the path on
// the host itself, as a container runtime uses it.
package driverroot
