package plugin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreBind writes what Reserve decided, as the in-tree plugin does. A write that failed may have been taken all the same: its answer was
// lost. Then devices are held of which no event has told yet, and Unreserve would drop all that is known of them; so PreBind returns
// once the index knows what the API server has of the pod's claims. (The claim for extended resources needs no look: the in-tree plugin
// has it assumed as allocated, whatever became of the write, until it is deleted.)
func (p *Plugin) PreBind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	status := p.DynamicResources.PreBind(ctx, cs, pod, node)
	if !status.IsSuccess() {
		p.assumeWrittenAllocations(ctx, pod)
	}
	return status
}

// assumeWrittenAllocations takes in what the API server has allocated to the pod's claims, however long it does not answer: until then the devices stay in
// flight. It ends with the scheduler, not with ctx, which is cancelled when the pod is preempted.
func (p *Plugin) assumeWrittenAllocations(ctx context.Context, pod *corev1.Pod) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(p.shared.life, cancel)() //nolint:contextcheck // it ends with the scheduler
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		claims, err := p.readAllocatedClaims(ctx, pod)
		if err != nil {
			logger.Error(err, "Cannot see whether devices were allocated, they stay reserved until the API server answers", "pod", klog.KObj(pod))
			return false, nil
		}
		for _, claim := range claims {
			p.shared.index.AssumeClaim(claim)
		}
		return true, nil
	})
}

// readAllocatedClaims reads those of the pod's claims from the API server that are allocated.
func (p *Plugin) readAllocatedClaims(ctx context.Context, pod *corev1.Pod) ([]*resourceapi.ResourceClaim, error) {
	var claims []*resourceapi.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // nothing was reserved for it
		}
		claim, err := p.handle.ClientSet().ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, *name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read the claim %s: %w", *name, err)
		case claim.Status.Allocation != nil:
			claims = append(claims, claim)
		}
	}
	return claims, nil
}
