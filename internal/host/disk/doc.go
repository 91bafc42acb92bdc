// Package disk is the port to the file systems of the node: the node's programs change files and folders through a FileSystem, so that tests
// inject faults and power failures (disktest). Reads need no port.
//
// # What survives a power failure
//
// As POSIX has it: the content of a file after File.Sync, and the entries of a folder after SyncFolder. Until then, content can be lost or torn
// and each created, renamed or removed entry lost or kept, in any order. A folder is an entry of its parent.
package disk
