package plugin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// largeClaim returns a claim with the most requests and alternatives that the API permits. No two numbers give the same one.
func largeClaim(number int) *resourceapi.ResourceClaim {
	claim := newClaim(fmt.Sprint("large-", number), "1g.10gb")
	claim.Spec.Devices.Requests = nil
	for r := range resourceapi.DeviceRequestsMaxSize {
		request := resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", r)}
		for i := range resourceapi.FirstAvailableDeviceRequestMaxSize {
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
				Name: fmt.Sprintf("a%d", i), DeviceClassName: "1g.10gb", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
					`!(device.attributes["gpu.tessera.dev"].index in [%d, %d])`, r, 32+8*number+i)}}},
			})
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, request)
	}
	return claim
}

func podFor(claim string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim, UID: types.UID("pod-" + claim)}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &claim}}
	return pod
}

// TestLargePodsWaitForTheirTurn tries pods with large claims at the same time: after the first one has taken more than is repaid,
// the others are rejected without an attempt. All of them stay out of the queue until their time, whatever event comes.
// A pod with a small claim does not wait.
func TestLargePodsWaitForTheirTurn(t *testing.T) {
	const pods = 10
	objects, nodes := hardware(t, 2, "1g.10gb")
	for i := range pods {
		objects = append(objects, largeClaim(i))
	}
	var p *Plugin
	s := newSite(t, objects, nodes, func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) {
		created, err := New(ctx, nil, h)
		p, _ = created.(*Plugin)
		return created, err
	})
	now := time.Now()
	p.shared.throttle = requeue.NewThrottle(attemptLimit, func() time.Time { return now })
	p.timers = requeue.NewTimers(func(*corev1.Pod) {}) // the handle has no queue
	attempted := 0
	for i := range pods {
		pod := podFor(fmt.Sprint("large-", i))
		if status := p.PreEnqueue(t.Context(), pod); !status.IsSuccess() {
			t.Fatalf("%s is kept out of the queue before its first attempt: %v", pod.Name, status)
		}
		cs := framework.NewCycleState()
		_, status := p.PreFilter(t.Context(), cs, pod, s.nodes)
		if !strings.HasPrefix(status.Message(), fit.ReasonTooComplex) {
			t.Fatalf("%s: the status is %v, want %s", pod.Name, status, fit.ReasonTooComplex)
		}
		if !strings.Contains(status.Message(), "one after the other") {
			attempted++
		}
		if status := p.PreEnqueue(t.Context(), pod); status.IsSuccess() {
			t.Errorf("%s can be queued before its time", pod.Name)
		}
	}
	if attempted != 1 {
		t.Errorf("%d of %d pods are attempted at the same time, want 1", attempted, pods)
	}
	if _, status := p.PreFilter(t.Context(), framework.NewCycleState(), podFor("claim"), s.nodes); !status.IsSuccess() {
		t.Errorf("a pod with a small claim is rejected: %v", status)
	}
}
