package plugin

import (
	"context"
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	kubefeatures "k8s.io/kubernetes/pkg/features"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// follow has the index follow the scheduler's informers.
func (s *shared) follow(ctx context.Context, h fwk.Handle) error {
	factory := h.SharedInformerFactory()
	sources := index.Sources{
		Slices: factory.Resource().V1().ResourceSlices(),
		Claims: factory.Resource().V1().ResourceClaims(),
	}
	if utilfeature.DefaultFeatureGate.Enabled(kubefeatures.DRADeviceTaintRules) {
		sources.TaintRules = factory.Resource().V1().DeviceTaintRules()
	}
	devices, err := s.index.Follow(ctx, sources)
	if err != nil {
		return err
	}
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(s.offers.handler())
	if err != nil {
		return fmt.Errorf("follow nodes: %w", err)
	}
	s.synced = []cache.InformerSynced{devices, nodes.HasSynced}
	return nil
}

// wait returns when the index has all that there was at the start. The scheduler itself waits for its own
// handlers only.
func (s *shared) wait(ctx context.Context) error {
	for _, synced := range s.synced {
		if !synced() && !cache.WaitForCacheSync(ctx.Done(), synced) {
			return fmt.Errorf("wait for the index: %w", context.Cause(ctx))
		}
	}
	return nil
}
