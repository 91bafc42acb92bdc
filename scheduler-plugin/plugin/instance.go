package plugin

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"

	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
)

// instance is an in-tree plugin with a view of its own. One goroutine at a time uses it.
type instance struct {
	*dynamicresources.DynamicResources
	view *intree.View
}

// pool hands out instances. There are as many as the scheduler filters nodes in parallel; whoever finds
// none waits for one.
type pool struct {
	// free has a place for every instance that nobody uses.
	free chan struct{}
	mu   sync.Mutex
	// instances are nil while they are in use.
	instances [instances]*instance
}

// instances is the number of instances of a pool: the scheduler's default parallelism.
const instances = 16

// newPool returns a pool whose instances write to the manager.
func newPool(ctx context.Context, args *config.TesseraDynamicResourcesArgs, h fwk.Handle, manager fwk.SharedDRAManager) (*pool, error) {
	p := &pool{free: make(chan struct{}, instances)}
	for at := range p.instances {
		v := intree.New(manager)
		inTree, err := newInTree(ctx, args, handle{Handle: h, manager: v, factory: unindexed{h.SharedInformerFactory()}})
		if err != nil {
			return nil, err
		}
		p.instances[at] = &instance{DynamicResources: inTree, view: v}
		p.free <- struct{}{}
	}
	return p, nil
}

// with calls do with an instance that sees the scene. Equal keys get the same instance if it is free: each
// remembers the last ten expressions that it compiled, and compiling costs more than all else.
func (p *pool) with(key string, s intree.Scene, do func(*instance) *fwk.Status) *fwk.Status {
	<-p.free
	at, i := p.take(key)
	i.view.Show(s)
	defer func() {
		i.view.Show(intree.Scene{})
		p.mu.Lock()
		p.instances[at] = i
		p.mu.Unlock()
		p.free <- struct{}{}
	}()
	return do(i)
}

// take takes the instance of the key, or the next one that is free, of which there is one.
func (p *pool) take(key string) (int, *instance) {
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

// newInTree returns an in-tree plugin.
func newInTree(ctx context.Context, args *config.TesseraDynamicResourcesArgs, h fwk.Handle) (*dynamicresources.DynamicResources, error) {
	inTreeArgs := &schedulerconfig.DynamicResourcesArgs{}
	on := features()
	if on.EnableDRASchedulerFilterTimeout {
		inTreeArgs.FilterTimeout = args.FilterTimeout
	}
	if on.EnableDRADeviceBindingConditions && on.EnableDRAResourceClaimDeviceStatus {
		inTreeArgs.BindingTimeout = args.BindingTimeout
	}
	made, err := dynamicresources.New(ctx, inTreeArgs, h, on)
	if err != nil {
		return nil, fmt.Errorf("make the in-tree plugin: %w", err)
	}
	inTree, ok := made.(*dynamicresources.DynamicResources)
	if !ok {
		return nil, fmt.Errorf("make the in-tree plugin: got a %T", made)
	}
	return inTree, nil
}
