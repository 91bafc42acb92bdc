package plugin

import "github.com/tessera-gpu/tessera/scheduler-plugin/index"

// Indexes returns the indexes of the running schedulers.
func (f *Factory) Indexes() []*index.Index { return f.indexes() }
