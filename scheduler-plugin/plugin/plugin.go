package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
	"github.com/tessera-gpu/tessera/scheduler-plugin/podgroup"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// Name is the plugin's name in profiles.
const Name = "TesseraDynamicResources"

// Plugin takes the place of the in-tree plugin DynamicResources in a profile. Its methods are called by
// the framework, under the framework's rules for concurrency.
//
// What it does not define itself, the in-tree plugin does, with the manager of claims that the index
// listens to: PreEnqueue, queueing hints, what PreBind writes. From Reserve on a cycle's state is
// what the in-tree plugin itself would have written.
type Plugin struct {
	*dynamicresources.DynamicResources

	handle   fwk.Handle
	args     *config.TesseraDynamicResourcesArgs
	features feature.Features
	shared   *sharedState
	pool     *intree.Pool
	hints    *requeue.Hints
	metrics  *metrics
	// preemptor is nil if preemption is disabled.
	preemptor *preemption.Preemptor
}

var (
	_ fwk.PreEnqueuePlugin         = (*Plugin)(nil)
	_ fwk.EnqueueExtensions        = (*Plugin)(nil)
	_ fwk.SignPlugin               = (*Plugin)(nil)
	_ fwk.PreFilterPlugin          = (*Plugin)(nil)
	_ fwk.FilterPlugin             = (*Plugin)(nil)
	_ fwk.PostFilterPlugin         = (*Plugin)(nil)
	_ fwk.PodGroupPostFilterPlugin = (*Plugin)(nil)
	_ fwk.PreScorePlugin           = (*Plugin)(nil)
	_ fwk.ScorePlugin              = (*Plugin)(nil)
	_ fwk.ReservePlugin            = (*Plugin)(nil)
	_ fwk.PreBindPlugin            = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (p *Plugin) Name() string { return Name }

// PreEnqueue holds a pod back as long as its claims do not exist, as the in-tree plugin does, and as long
// as pods are being evicted for it.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	if p.preemptor.IsEvictingFor(pod) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waiting for the preemption for this pod to be finished")
	}
	return p.DynamicResources.PreEnqueue(ctx, pod)
}

// SignPod has every pod of a group that asks for devices looked at by itself, those with claims as the in-tree
// plugin does: which nodes are good depends on where the others are.
func (p *Plugin) SignPod(ctx context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, ok := podgroup.GroupOf(pod); ok && len(p.shared.extended.Requested(pod)) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods of a group are not signable")
	}
	return p.DynamicResources.SignPod(ctx, pod)
}
