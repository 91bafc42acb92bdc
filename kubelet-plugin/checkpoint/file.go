package checkpoint

import (
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// fileOptions returns the options of durable writes. Each file has at most one writer at a time. files is the file
// system; nil means the host's.
func fileOptions(files disk.FileSystem) atomicfile.Options {
	return atomicfile.Options{Mode: 0o600, SingleWriter: true, Files: files}
}
