package plugin

import (
	"context"
	"errors"
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

// PreBind writes the allocation, as the in-tree plugin does. A failed write may have been stored all the same, if only
// the answer was lost. Unreserve would then release devices that the API server has allocated. So after a failure
// PreBind reads the pod's claims and records their allocations before it returns. The claim for extended resources
// needs no read: the in-tree plugin assumes it as allocated until it is deleted.
func (p *Plugin) PreBind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	status := p.DynamicResources.PreBind(ctx, cs, pod, node)
	if !status.IsSuccess() {
		if err := p.assumeWrittenAllocations(ctx, pod); err != nil {
			status.AppendReason(err.Error())
		}
	}
	return status
}

// assumeWrittenAllocations records the allocations that the API server has for the pod's claims. It retries until the
// API server answers: until then the devices stay in flight. It ends with the scheduler, not with ctx, which is
// canceled when the pod is preempted, and with an error after the time that the in-tree plugin waits for binding
// conditions. Then the devices are released as the in-tree plugin does, which reads nothing after a failed write: an
// allocation that the API server has is known when the informer of claims is connected again.
func (p *Plugin) assumeWrittenAllocations(ctx context.Context, pod *corev1.Pod) error {
	logger, limit := klog.FromContext(ctx), p.args.BindingTimeout.Duration
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(p.shared.life, cancel)() //nolint:contextcheck // it ends with the scheduler
	var last error
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		claims, err := p.readAllocatedClaims(ctx, pod)
		if err != nil {
			if last == nil {
				logger.Error(err, "Cannot read the claims after a failed write; their devices stay reserved until the API server answers", "pod", klog.KObj(pod), "limit", limit)
			}
			last = err
			return false, nil
		}
		for _, claim := range claims {
			p.shared.index.AssumeClaim(claim)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("read the pod's claims for %s after a failed write, its devices are released: %w", limit, errors.Join(err, last))
	}
	return nil
}

// readAllocatedClaims reads the pod's claims from the API server and returns those that are allocated.
func (p *Plugin) readAllocatedClaims(ctx context.Context, pod *corev1.Pod) ([]*resourceapi.ResourceClaim, error) {
	var claims []*resourceapi.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // it has no claim
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
