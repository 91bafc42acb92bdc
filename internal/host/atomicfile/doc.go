// Package atomicfile replaces files as a whole: a reader, and a machine that comes back after a power failure, finds either the old
// content or the new one.
//
// The content is written to a temporary file in the same folder, given its mode, synced and closed. The temporary file is then renamed
// to the path and the folder is synced. Volatile files are not synced. After an error the path holds the old content, or the new one if only
// the sync of the folder failed, and the temporary file is removed if the file system allows it.
//
// Paths are resolved as usual, links included. A folder that another user can write to needs other means: kubelet-plugin/hook works on
// descriptors inside a container's root for that reason and does not use this package.
package atomicfile
