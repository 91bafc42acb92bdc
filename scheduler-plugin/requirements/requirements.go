package requirements

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// ErrDelegate means that fit does not decide, on any node or on this one: the in-tree allocator does.
var ErrDelegate = errors.New("delegated to the in-tree allocator")

// delegatef returns an error that wraps ErrDelegate, with the reason.
func delegatef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDelegate, fmt.Errorf(format, args...))
}

// PodRequirements is what the claims of a pod require, of any node. It is immutable and safe for concurrent use.
type PodRequirements struct {
	// Key is equal for equal requirements, such as those of the pods of one Deployment. It does not depend on the names of
	// the claims.
	Key string

	compiled *compiledClaims
	// names are the names of the requests, claim/request.
	names []string
}

// OnNode returns what is required of the node. An error wraps ErrDelegate if fit does not decide there, for example
// because a device of another driver matches as well. The result is shared by all nodes whose devices are equal as far
// as the claims read them, and must not be changed.
//
// The evaluation of selectors takes steps from the budget. If it is exceeded, the error wraps fit.ErrTooComplex; results
// so far are cached, so that a later call continues.
func (p *PodRequirements) OnNode(n *index.Node, b *fit.Budget) (*fit.Requirements, error) {
	if n.DelegateReason != nil {
		return nil, delegatef("node %s: %w", n.Name, n.DelegateReason)
	}
	if p.compiled == nil {
		return &fit.Requirements{}, nil
	}
	demands, err := p.compiled.onNode(n, b)
	if err != nil {
		return nil, err
	}
	return p.withNames(demands), nil
}

// withNames returns the requirements with the names of the pod's own claims: the cached ones may have those of another pod.
func (p *PodRequirements) withNames(demands *fit.Requirements) *fit.Requirements {
	own := true
	for i, name := range p.names {
		own = own && demands.Requests[i].Name == name
	}
	if own {
		return demands
	}
	renamed := *demands
	renamed.Requests = slices.Clone(demands.Requests)
	for i, name := range p.names {
		renamed.Requests[i].Name = name
	}
	return &renamed
}

// DropNode drops what is cached, for all requirements, of a node that is removed.
func (p *PodRequirements) DropNode(node string) {
	if p.compiled != nil {
		p.compiled.digests.drop(node)
	}
}
