package plugin

import "github.com/tessera-gpu/tessera/scheduler-plugin/index"

// Indexes returns those of the schedulers that run.
func (f *Factory) Indexes() []*index.Index { return f.indexes() }
