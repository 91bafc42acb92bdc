package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/extended"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
	"github.com/tessera-gpu/tessera/scheduler-plugin/podgroup"
	"github.com/tessera-gpu/tessera/scheduler-plugin/rank"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// sharedState is shared by the profiles of one scheduler: with an index for each profile, one device could be allocated
// twice.
type sharedState struct {
	// life is the context of the scheduler.
	life    context.Context
	index   *index.Index
	reader  *requirements.Reader
	rank    *rank.Rank
	manager intree.Manager
	// args are the arguments of the first profile.
	args *config.TesseraDynamicResourcesArgs
	// extended are the extended resources that DeviceClasses back.
	extended *extended.Resources
	// throttle limits the time for pods whose claims are too complex.
	throttle *requeue.Throttle
	// groups records the nodes of the pods of groups.
	groups *podgroup.Tracker
	// requeuers are one per informer, and one for nominations.
	requeuers []*requeue.Requeuer
	// synced report whether the objects that existed at the start are processed.
	synced []cache.InformerSynced
}

// maxRanked is the number of requirements for which the order of nodes is kept.
const maxRanked = 64

// newSharedState returns the shared state. It is called before the informers start.
func newSharedState(ctx context.Context, args *config.TesseraDynamicResourcesArgs, h fwk.Handle) (*sharedState, error) {
	x := index.New(index.Config{Drivers: args.Drivers, Weights: fit.Weights{Profiles: args.Weights.Profiles}})
	s := &sharedState{
		life:     ctx,
		index:    x,
		reader:   requirements.NewReader(h.SharedDRAManager().DeviceClasses(), x),
		rank:     rank.New(x, maxRanked),
		manager:  intree.NewManager(h.SharedDRAManager(), x),
		groups:   podgroup.NewTracker(),
		throttle: requeue.NewThrottle(attemptLimit, time.Now),
		args:     args,
	}
	claims := h.SharedInformerFactory().Resource().V1().ResourceClaims().Informer()
	var err error
	if s.extended, err = extended.NewResources(s.manager, claims, features().EnableDRAExtendedResource); err != nil {
		return nil, err
	}
	if err = s.follow(ctx, h); err != nil {
		return nil, err
	}
	return s, nil
}

// checkArgs returns an error if another profile has arguments that need another index.
func (s *sharedState) checkArgs(args *config.TesseraDynamicResourcesArgs) error {
	if slices.Equal(s.args.Drivers, args.Drivers) && maps.Equal(s.args.Weights.Profiles, args.Weights.Profiles) && s.args.Mode == args.Mode {
		return nil
	}
	return errors.New("the arguments drivers, weights and mode must be the same in all profiles")
}
