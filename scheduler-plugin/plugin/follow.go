package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	kubefeatures "k8s.io/kubernetes/pkg/features"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// follow connects the index and the trackers to the scheduler's informers.
func (s *sharedState) follow(ctx context.Context, h fwk.Handle) error {
	factory := h.SharedInformerFactory()
	slices, claims := factory.Resource().V1().ResourceSlices(), factory.Resource().V1().ResourceClaims()
	if err := s.transform(factory.Resource().V1()); err != nil {
		return err
	}
	sources := index.Sources{
		Slices: slices, OnSlicesEvent: s.newRequeuer(slices.Informer().LastSyncResourceVersion, h).EventProcessed,
		Claims: claims, OnClaimsEvent: s.newRequeuer(claims.Informer().LastSyncResourceVersion, h).EventProcessed,
	}
	if utilfeature.DefaultFeatureGate.Enabled(kubefeatures.DRADeviceTaintRules) {
		rules := factory.Resource().V1().DeviceTaintRules()
		sources.TaintRules = rules
		sources.OnTaintRulesEvent = s.newRequeuer(rules.Informer().LastSyncResourceVersion, h).EventProcessed
	}
	devices, err := s.index.Follow(ctx, sources)
	if err != nil {
		return err
	}
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(s.extended.NodeHandler())
	if err != nil {
		return fmt.Errorf("follow nodes: %w", err)
	}
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(s.groups.EventHandler())
	if err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	s.synced = []cache.InformerSynced{devices, nodes.HasSynced, pods.HasSynced}
	return nil
}

// transform sets the transformations of the scheduler's informers. In mode Additional the taint that keeps the stock
// scheduler off the devices has no effect in this process.
func (s *sharedState) transform(informers resourceinformers.Interface) error {
	if err := informers.ResourceSlices().Informer().SetTransform(index.NewSliceTransform()); err != nil {
		return fmt.Errorf("transform ResourceSlices: %w", err)
	}
	if s.args.Mode != config.Additional || !utilfeature.DefaultFeatureGate.Enabled(kubefeatures.DRADeviceTaintRules) {
		return nil
	}
	if err := informers.DeviceTaintRules().Informer().SetTransform(index.NewTaintRuleTransform(v1alpha1.TaintScheduler)); err != nil {
		return fmt.Errorf("transform DeviceTaintRules: %w", err)
	}
	return nil
}

// waitForSync returns when the index has processed all objects that existed at the start. The scheduler waits for its
// own handlers only.
func (s *sharedState) waitForSync(ctx context.Context) error {
	for _, synced := range s.synced {
		if !synced() && !cache.WaitForCacheSync(ctx.Done(), synced) {
			return fmt.Errorf("wait for the index: %w", context.Cause(ctx))
		}
	}
	return nil
}

// newRequeuer returns a Requeuer for an informer. received returns the version of the newest object that the informer
// has received. It is called before the scheduler runs.
func (s *sharedState) newRequeuer(received func() string, h fwk.Handle) *requeue.Requeuer {
	r := requeue.NewRequeuer(received, func(pods []*corev1.Pod) {
		byName := map[string]*corev1.Pod{}
		for _, pod := range pods {
			byName[klog.KObj(pod).String()] = pod
		}
		h.Activate(klog.Background(), byName)
	})
	s.requeuers = append(s.requeuers, r)
	return r
}

// startAttempt records that an attempt to schedule the pod starts.
func (s *sharedState) startAttempt(pod *corev1.Pod) {
	for _, r := range s.requeuers {
		r.StartAttempt(pod)
	}
}
