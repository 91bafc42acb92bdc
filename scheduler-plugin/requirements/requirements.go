package requirements

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// ErrDelegate says that fit cannot decide a demand, or not on this node: the in-tree allocator does.
var ErrDelegate = errors.New("delegated to the in-tree allocator")

// delegatef returns an error that wraps ErrDelegate and says why.
func delegatef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDelegate, fmt.Errorf(format, args...))
}

// PodRequirements is what a pod's claims ask for, of any node. It is never changed and safe for concurrent use.
type PodRequirements struct {
	// Key is equal for demands that ask for the same: pods of one Deployment, for instance. It does not
	// depend on the names of the claims.
	Key string

	compiled *compiledClaims
	// names are those of the requests, claim/request.
	names []string
}

// OnNode returns what is asked of this node. An error wraps ErrDelegate when fit cannot decide it there, such
// as when devices of another driver match, too. The answer is remembered for all nodes whose devices look
// the same to the demand, and must not be changed.
func (p *PodRequirements) OnNode(n *index.Node) (*fit.Requirements, error) {
	if n.DelegateReason != nil {
		return nil, delegatef("node %s: %w", n.Name, n.DelegateReason)
	}
	if p.compiled == nil {
		return &fit.Requirements{}, nil
	}
	asked, err := p.compiled.onNode(n)
	if err != nil {
		return nil, err
	}
	return p.withNames(asked), nil
}

// withNames returns the demand with the names of the pod's own claims: those of another pod may be in it.
func (p *PodRequirements) withNames(asked *fit.Requirements) *fit.Requirements {
	own := true
	for i, name := range p.names {
		own = own && asked.Requests[i].Name == name
	}
	if own {
		return asked
	}
	renamed := *asked
	renamed.Requests = slices.Clone(asked.Requests)
	for i, name := range p.names {
		renamed.Requests[i].Name = name
	}
	return &renamed
}

// ForgetNode drops what is remembered, for all demands, of a node that is gone.
func (p *PodRequirements) ForgetNode(node string) {
	if p.compiled != nil {
		p.compiled.digests.forget(node)
	}
}
