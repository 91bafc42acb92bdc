package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics/legacyregistry"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/tessera-gpu/tessera/internal/liveness"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// Factory creates the plugins of the profiles of a scheduler, which share one index. It is safe for concurrent use.
type Factory struct {
	metrics *metrics
	// cycles are the calls of the scheduling cycle, of all profiles.
	cycles *liveness.Work

	mu     sync.Mutex
	shared map[fwk.SharedDRAManager]*sharedState
}

// NewFactory returns a factory. A process has one.
func NewFactory() *Factory {
	f := &Factory{metrics: newMetrics(), cycles: &liveness.Work{Name: "the scheduling cycle", Limit: hangLimit}, shared: map[fwk.SharedDRAManager]*sharedState{}}
	_ = legacyregistry.CustomRegister(newCollector(f))
	return f
}

// hangLimit is after how long one call of the scheduling cycle hangs. The searches have limits below a second, a call of the in-tree plugin has a timeout of
// 10 s, preemption on all nodes of a large cluster takes tens of seconds, and so does a request to an API server that does not answer.
const hangLimit = 5 * time.Minute

// AwaitHang returns an error when the scheduling cycle hangs, which no health endpoint of kube-scheduler reports: no pod of the cluster is scheduled any
// more. It returns nil when ctx ends.
func (f *Factory) AwaitHang(ctx context.Context) error { return f.cycles.Await(ctx) }

// indexes returns the indexes of all running schedulers.
func (f *Factory) indexes() []*index.Index {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*index.Index
	for _, s := range f.shared {
		all = append(all, s.index)
	}
	return all
}

// New returns the plugin of a scheduler with one such profile. Schedulers with several profiles use one Factory.
func New(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	return NewFactory().New(ctx, args, h)
}

// New returns the plugin of one profile. It is called once per profile, before the informers start. ctx is the
// scheduler's: what the profiles share ends with it.
func (f *Factory) New(ctx context.Context, object runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	args, err := config.Load(object)
	if err != nil {
		return nil, err
	}
	s, err := f.sharedFor(ctx, args, h)
	if err != nil {
		return nil, err
	}
	inTreeArgs := inTreeArgs(args)
	main, err := intree.New(ctx, inTreeArgs, intree.NewHandle(h, s.manager), features())
	if err != nil {
		return nil, err
	}
	instances, err := intree.NewPool(ctx, inTreeArgs, h, features(), s.manager)
	if err != nil {
		return nil, err
	}
	made := &Plugin{
		DynamicResources: main, handle: h, args: args, features: features(),
		shared: s, pool: instances, hints: requeue.NewHints(), sweeps: newSweeps(), metrics: f.metrics, cycles: f.cycles,
	}
	made.timers = requeue.NewTimers(func(pod *corev1.Pod) {
		if s.life.Err() == nil {
			made.retryNow(s.life, pod)
		}
	})
	if args.Preemption == config.Enabled {
		if made.preemptor, err = made.newPreemptor(ctx); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// newPreemptor returns the preemptor of the profile.
func (p *Plugin) newPreemptor(ctx context.Context) (*preemption.Preemptor, error) {
	return preemption.New(ctx, preemption.Config{
		PluginName: Name, Handle: p.handle, Features: p.features,
		Index: p.shared.index, Claims: p.shared.manager.ResourceClaims(), Requeuer: p.shared.newRequeuer(requeue.NoVersion, p.handle),
		RequirementsOf: p.RequirementsOf,
		BudgetOf:       func(cs fwk.CycleState) *fit.Budget { return cycleOf(cs).budget },
		NewNodeFilter: func(ctx context.Context, pod *corev1.Pod) func(*corev1.Node) bool {
			return p.newNodeCheck(ctx, pod).IsOpen
		},
	})
}

// sharedFor returns the state that the profiles of the handle's scheduler share.
func (f *Factory) sharedFor(ctx context.Context, args *config.TesseraDynamicResourcesArgs, h fwk.Handle) (*sharedState, error) {
	manager := h.SharedDRAManager()
	if manager == nil {
		return nil, errors.New("the scheduler has no manager of claims: turn the feature gate DynamicResourceAllocation on")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, ok := f.shared[manager]; ok {
		return s, s.checkArgs(args)
	}
	s, err := newSharedState(ctx, args, h)
	if err != nil {
		return nil, fmt.Errorf("start the index: %w", err)
	}
	f.shared[manager] = s
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.shared, manager)
	})
	return s, nil
}

// inTreeArgs returns the arguments of the in-tree plugin.
func inTreeArgs(args *config.TesseraDynamicResourcesArgs) *schedulerconfig.DynamicResourcesArgs {
	inTreeArgs := &schedulerconfig.DynamicResourcesArgs{}
	on := features()
	if on.EnableDRASchedulerFilterTimeout {
		inTreeArgs.FilterTimeout = args.FilterTimeout
	}
	if on.EnableDRADeviceBindingConditions && on.EnableDRAResourceClaimDeviceStatus {
		inTreeArgs.BindingTimeout = args.BindingTimeout
	}
	return inTreeArgs
}

func features() feature.Features {
	return feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
}
