package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	kubefeatures "k8s.io/kubernetes/pkg/features"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// follow has the index follow the scheduler's informers.
func (s *shared) follow(ctx context.Context, h fwk.Handle) error {
	factory := h.SharedInformerFactory()
	slices, claims := factory.Resource().V1().ResourceSlices(), factory.Resource().V1().ResourceClaims()
	sources := index.Sources{
		Slices: heardSlices{slices, s.behindOf(slices.Informer().LastSyncResourceVersion, h)},
		Claims: heardClaims{claims, s.behindOf(claims.Informer().LastSyncResourceVersion, h)},
	}
	if utilfeature.DefaultFeatureGate.Enabled(kubefeatures.DRADeviceTaintRules) {
		rules := factory.Resource().V1().DeviceTaintRules()
		sources.TaintRules = heardRules{rules, s.behindOf(rules.Informer().LastSyncResourceVersion, h)}
	}
	devices, err := s.index.Follow(ctx, sources)
	if err != nil {
		return err
	}
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(s.offers.handler())
	if err != nil {
		return fmt.Errorf("follow nodes: %w", err)
	}
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(s.groups.handler())
	if err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	s.synced = []cache.InformerSynced{devices, nodes.HasSynced, pods.HasSynced}
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

// behindOf returns what closes the gap between the scheduler's handlers of an informer and the index.
func (s *shared) behindOf(received func() string, h fwk.Handle) *behind {
	b := &behind{received: received, again: func(pods []*corev1.Pod) {
		again := map[string]*corev1.Pod{}
		for _, pod := range pods {
			again[klog.KObj(pod).String()] = pod
		}
		h.Activate(klog.Background(), again)
	}}
	s.behind = append(s.behind, b)
	return b
}

// unversioned is for what no informer tells: the scheduler never hears of it, whenever an attempt began.
func unversioned() string { return "" }

// begin notes the beginning of an attempt.
func (s *shared) begin(pod *corev1.Pod) {
	for _, b := range s.behind {
		b.begin(pod)
	}
}
