package plugin

import (
	"context"
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
	"github.com/tessera-gpu/tessera/scheduler-plugin/view"
)

// instance is an in-tree plugin with a view of its own. One goroutine at a time uses it.
type instance struct {
	*dynamicresources.DynamicResources
	view *view.View
}

// pool hands out instances. There are as many as the scheduler filters nodes in parallel; whoever finds
// none waits for one.
type pool struct {
	free chan *instance
}

// instances is the number of instances of a pool: the scheduler's default parallelism.
const instances = 16

// newPool returns a pool whose instances write to the manager.
func newPool(ctx context.Context, args *config.TesseraDynamicResourcesArgs, h fwk.Handle, manager fwk.SharedDRAManager) (*pool, error) {
	p := &pool{free: make(chan *instance, instances)}
	for range instances {
		v := view.New(manager)
		inTree, err := newInTree(ctx, args, handle{Handle: h, manager: v, factory: unindexed{h.SharedInformerFactory()}})
		if err != nil {
			return nil, err
		}
		p.free <- &instance{DynamicResources: inTree, view: v}
	}
	return p, nil
}

// with calls do with an instance that sees the scene.
func (p *pool) with(s view.Scene, do func(*instance) *fwk.Status) *fwk.Status {
	i := <-p.free
	i.view.Show(s)
	defer func() {
		i.view.Show(view.Scene{})
		p.free <- i
	}()
	return do(i)
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
