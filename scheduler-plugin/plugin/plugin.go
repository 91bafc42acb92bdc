package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/tessera-gpu/tessera/internal/liveness"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
	"github.com/tessera-gpu/tessera/scheduler-plugin/podgroup"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// Name is the plugin's name in profiles.
const Name = "TesseraDynamicResources"

// Plugin replaces the in-tree plugin DynamicResources in a profile. The framework calls its methods under its own rules
// for concurrency.
//
// Methods that it does not define are those of the in-tree plugin: queueing hints, and the writes of PreBind. The
// in-tree plugin uses a manager of claims that reports to the index. From Reserve on, the cycle state is what the
// in-tree plugin alone would have written.
type Plugin struct {
	*dynamicresources.DynamicResources

	handle   fwk.Handle
	args     *config.TesseraDynamicResourcesArgs
	features feature.Features
	shared   *sharedState
	pool     *intree.Pool
	hints    *requeue.Hints
	sweeps   sweeps
	timers   *requeue.Timers
	metrics  *metrics
	cycles   *liveness.Work
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

// PreEnqueue keeps a pod out of the queue until its claims exist, as the in-tree plugin does, while pods are being evicted for
// it, and until its backoff is over if its claims are too complex. Otherwise every event of its claims would cost an attempt.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	if p.preemptor.IsEvictingFor(pod) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waiting until the preemption for this pod is finished")
	}
	if p.timers.Has(pod.UID) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonTooComplex+". It is retried after a backoff")
	}
	return p.DynamicResources.PreEnqueue(ctx, pod)
}

// SignPod makes every pod of a group that requires devices be evaluated separately: its best nodes depend on where the
// other pods of the group are.
func (p *Plugin) SignPod(ctx context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, ok := podgroup.GroupOf(pod); ok && len(p.shared.extended.Requested(pod)) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods of a group are not signable")
	}
	return p.DynamicResources.SignPod(ctx, pod)
}
