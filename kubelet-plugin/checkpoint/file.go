package checkpoint

import "github.com/tessera-gpu/tessera/internal/host/atomicfile"

// fileOptions returns the options of durable writes. Each file has at most one writer at a time. files is the file
// system; nil means the process's.
func fileOptions(files atomicfile.FileSystem) atomicfile.Options {
	return atomicfile.Options{Mode: 0o600, SingleWriter: true, FileSystem: files}
}
