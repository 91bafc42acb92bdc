package requirements

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// ErrDelegate says that fit cannot decide a demand, or not on this node: the in-tree allocator does.
var ErrDelegate = errors.New("left to the in-tree allocator")

// delegate returns an error that wraps ErrDelegate and says why.
func delegate(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDelegate, fmt.Errorf(format, args...))
}

// Demand is what a pod's claims ask for, of any node. It is never changed and safe for concurrent use.
type Demand struct {
	// Key is equal for demands that ask for the same: pods of one Deployment, for instance. It does not
	// depend on the names of the claims.
	Key string

	plan *plan
	// names are those of the requests, claim/request.
	names []string
}

// On returns what is asked of this node. An error wraps ErrDelegate when fit cannot decide it there, such
// as when devices of another driver match, too. The answer is remembered for all nodes whose devices look
// the same to the demand, and must not be changed.
func (d *Demand) On(n *index.Node) (*fit.Demand, error) {
	if n.Unclear != nil {
		return nil, delegate("node %s: %w", n.Name, n.Unclear)
	}
	if d.plan == nil {
		return &fit.Demand{}, nil
	}
	asked, err := d.plan.on(n)
	if err != nil {
		return nil, err
	}
	return d.named(asked), nil
}

// named returns the demand with the names of the pod's own claims: those of another pod may be in it.
func (d *Demand) named(asked *fit.Demand) *fit.Demand {
	own := true
	for i, name := range d.names {
		own = own && asked.Requests[i].Name == name
	}
	if own {
		return asked
	}
	renamed := *asked
	renamed.Requests = slices.Clone(asked.Requests)
	for i, name := range d.names {
		renamed.Requests[i].Name = name
	}
	return &renamed
}

// Forget drops what is remembered, for all demands, of a node that is gone.
func (d *Demand) Forget(node string) {
	if d.plan != nil {
		d.plan.surveys.forget(node)
	}
}
