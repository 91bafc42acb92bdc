package intree

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// Instance is an in-tree plugin with a view of its own. One goroutine at a time uses it.
type Instance struct {
	*dynamicresources.DynamicResources
	manager *ScopedManager
}

// Pool hands out instances. There are as many as the scheduler filters nodes in parallel; whoever finds
// none waits for one.
type Pool struct {
	// free has a place for every instance that nobody uses.
	free chan struct{}
	mu   sync.Mutex
	// instances are nil while they are in use.
	instances [instances]*Instance
}

// instances is the number of instances of a pool: the scheduler's default parallelism.
const instances = 16

// NewPool returns a pool whose instances write to the manager.
func NewPool(ctx context.Context, args *schedulerconfig.DynamicResourcesArgs, h fwk.Handle, f feature.Features, manager fwk.SharedDRAManager) (*Pool, error) {
	p := &Pool{free: make(chan struct{}, instances)}
	for at := range p.instances {
		v := NewScopedManager(manager)
		inTree, err := New(ctx, args, Handle{Handle: h, manager: v, factory: unindexed{h.SharedInformerFactory()}}, f)
		if err != nil {
			return nil, err
		}
		p.instances[at] = &Instance{DynamicResources: inTree, manager: v}
		p.free <- struct{}{}
	}
	return p, nil
}

// With calls do with an instance that sees the scene. Equal keys get the same instance if it is free: each
// remembers the last ten expressions that it compiled, and compiling costs more than all else.
func (p *Pool) With(key string, s Scope, do func(*Instance) *fwk.Status) *fwk.Status {
	<-p.free
	at, i := p.take(key)
	i.manager.SetScope(s)
	defer func() {
		i.manager.SetScope(Scope{})
		p.mu.Lock()
		p.instances[at] = i
		p.mu.Unlock()
		p.free <- struct{}{}
	}()
	return do(i)
}

// take takes the instance of the key, or the next one that is free, of which there is one.
func (p *Pool) take(key string) (int, *Instance) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	p.mu.Lock()
	defer p.mu.Unlock()
	at := int(h.Sum32() % instances)
	for p.instances[at] == nil {
		at = (at + 1) % instances
	}
	i := p.instances[at]
	p.instances[at] = nil
	return at, i
}

// ReasonCannotAllocate is the in-tree plugin's reason for a node on which it cannot allocate the pod's claims. Using
// the same text makes the scheduler count such nodes together in the pod's message.
const ReasonCannotAllocate = "cannot allocate all claims"

// New returns an in-tree plugin.
func New(ctx context.Context, args *schedulerconfig.DynamicResourcesArgs, h fwk.Handle, f feature.Features) (*dynamicresources.DynamicResources, error) {
	made, err := dynamicresources.New(ctx, args, h, f)
	if err != nil {
		return nil, fmt.Errorf("make the in-tree plugin: %w", err)
	}
	inTree, ok := made.(*dynamicresources.DynamicResources)
	if !ok {
		return nil, fmt.Errorf("make the in-tree plugin: got a %T", made)
	}
	return inTree, nil
}
