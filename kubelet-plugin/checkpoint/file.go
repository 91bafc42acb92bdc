package checkpoint

import "github.com/tessera-gpu/tessera/internal/host/atomicfile"

// fileOptions is how the files of this package are written: durably, and one writer at a time for each.
func fileOptions() atomicfile.Options { return atomicfile.Options{Mode: 0o600, SingleWriter: true} }
