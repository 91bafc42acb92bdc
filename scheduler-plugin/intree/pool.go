package intree

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// Instance is an in-tree plugin that sees one Scope. It is used by one goroutine at a time.
type Instance struct {
	*dynamicresources.DynamicResources
	manager *ScopedManager
}

// Pool lends instances of the in-tree plugin. It has as many as were ever in use at the same time, which is at most the
// scheduler's parallelism, and at least parallelize.DefaultParallelism, for the sake of their caches. It is safe for
// concurrent use.
type Pool struct {
	create func() (*Instance, error)

	mu sync.Mutex
	// instances has a slot for every instance, which is nil while the instance is lent.
	instances []*Instance
}

// NewPool returns a pool whose instances write to the manager. ctx is the scheduler's.
func NewPool(ctx context.Context, args *schedulerconfig.DynamicResourcesArgs, h fwk.Handle, f feature.Features, manager fwk.SharedDRAManager) (*Pool, error) {
	p := &Pool{create: func() (*Instance, error) {
		scoped := NewScopedManager(manager)
		inTree, err := New(ctx, args, Handle{Handle: h, manager: scoped, factory: unindexed{h.SharedInformerFactory()}}, f)
		if err != nil {
			return nil, err
		}
		return &Instance{DynamicResources: inTree, manager: scoped}, nil
	}}
	for range parallelize.DefaultParallelism {
		i, err := p.create()
		if err != nil {
			return nil, err
		}
		p.instances = append(p.instances, i)
	}
	return p, nil
}

// With calls do with an instance that sees the scope. Equal keys get the same instance if it is free: an instance caches
// the last ten CEL expressions that it compiled, and compiling costs more than the rest of an evaluation.
func (p *Pool) With(key string, s Scope, do func(*Instance) *fwk.Status) *fwk.Status {
	slot, i, err := p.lend(key)
	if err != nil {
		return fwk.AsStatus(err)
	}
	i.manager.SetScope(s)
	defer func() {
		i.manager.SetScope(Scope{})
		p.mu.Lock()
		defer p.mu.Unlock()
		p.instances[slot] = i
	}()
	return do(i)
}

// lend returns the instance at the key's slot, or at the next slot with a free one, or a new instance if all are lent.
func (p *Pool) lend(key string) (int, *Instance, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	p.mu.Lock()
	defer p.mu.Unlock()
	first := int(h.Sum32() % uint32(len(p.instances)))
	for n := range p.instances {
		slot := (first + n) % len(p.instances)
		if i := p.instances[slot]; i != nil {
			p.instances[slot] = nil
			return slot, i, nil
		}
	}
	i, err := p.create()
	if err != nil {
		return 0, nil, err
	}
	p.instances = append(p.instances, nil)
	return len(p.instances) - 1, i, nil
}

// ReasonCannotAllocate is the in-tree plugin's reason for a node on which it cannot allocate the pod's claims. Using
// the same text makes the scheduler count such nodes together in the pod's message.
const ReasonCannotAllocate = "cannot allocate all claims"

// New returns an in-tree plugin.
func New(ctx context.Context, args *schedulerconfig.DynamicResourcesArgs, h fwk.Handle, f feature.Features) (*dynamicresources.DynamicResources, error) {
	created, err := dynamicresources.New(ctx, args, h, f)
	if err != nil {
		return nil, fmt.Errorf("create the in-tree plugin: %w", err)
	}
	inTree, ok := created.(*dynamicresources.DynamicResources)
	if !ok {
		return nil, fmt.Errorf("create the in-tree plugin: unexpected type %T", created)
	}
	return inTree, nil
}
