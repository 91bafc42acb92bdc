package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// published returns the ResourceSlices of a node with a T4 that has the faults.
func published(t *testing.T, faults ...gpu.Fault) []*resourceapi.ResourceSlice {
	t.Helper()
	node := gputest.Node(t, "t4x1")
	node.Name, node.GPUs[0].Faults = "node1", faults
	pool, err := wire.Encode(node, wire.Options{Driver: v1alpha1.DriverName, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.Monitor}}})
	if err != nil {
		t.Fatal(err)
	}
	var list []*resourceapi.ResourceSlice
	for i, content := range pool.Slices {
		list = append(list, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, Spec: resourceapi.ResourceSliceSpec{
			Driver: v1alpha1.DriverName, NodeName: &node.Name, Pool: resourceapi.ResourcePool{Name: pool.Name, ResourceSliceCount: int64(len(pool.Slices))},
			SharedCounters: content.SharedCounters, Devices: content.Devices,
		}})
	}
	return list
}

// TestFaultTrace prints a fault and its remediation among events of other pods and GPUs.
func TestFaultTrace(t *testing.T) {
	now := time.Unix(0, 0)
	var text strings.Builder
	name := gputest.Node(t, "t4x1").GPUs[0].Name()
	trace := &faultTrace{
		out: &text, now: func() time.Time { return now },
		node: "node1", gpu: name, app: "workload", pod: "one", claim: "gpu-one", earlier: []string{"old"},
	}
	trace.begin()
	fault := gpu.Fault{GPU: name, Signal: gpu.SignalXID, XID: 95, Severity: gpu.Fatal, Remedy: gpu.Reset}
	message := "XID 95"
	pod := func(uid, label string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "workload-" + uid, Labels: map[string]string{"app": label}}, Spec: corev1.PodSpec{NodeName: "node2"}}
		p.UID, p.Status.Phase = "one", phase
		if uid != "one" {
			p.UID = "two"
		}
		return p
	}
	unhealthy := pod("one", "workload", corev1.PodRunning)
	unhealthy.Status.ContainerStatuses = []corev1.ContainerStatus{{AllocatedResourcesStatus: []corev1.ResourceStatus{
		{Name: "claim:gpu", Resources: []corev1.ResourceHealth{{Health: corev1.ResourceHealthStatusUnhealthy, Message: &message}}},
	}}}
	evicted := pod("one", "workload", corev1.PodRunning)
	evicted.DeletionTimestamp = &metav1.Time{}
	evicted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu-one"}}
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Conditions: []metav1.Condition{{Type: "Healthy", Status: metav1.ConditionFalse, Reason: "XID95", Message: message}}}}
	remediating := func(step v1alpha1.RemediationStep, records ...v1alpha1.RemediationRecord) *v1alpha1.GPUNode {
		n := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: v1alpha1.GPUNodeStatus{History: records}}
		if step != "" {
			n.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: "another", Step: v1alpha1.RemediationStepReplace}, {GPU: name, Step: step, Message: "GPU\nreset"}}
		}
		return n
	}
	record := func(id string) v1alpha1.RemediationRecord {
		return v1alpha1.RemediationRecord{ID: id, GPU: name, Faults: []string{"XID 95"}, Outcome: v1alpha1.OutcomeRecovered, Message: "reset", Began: metav1.Unix(0, 0), Ended: metav1.Unix(9, 0)}
	}

	publish := func(faults ...gpu.Fault) {
		for _, slice := range published(t, faults...) {
			trace.handleSlice(slice, false)
		}
	}
	publish()
	trace.handlePod(pod("one", "workload", corev1.PodRunning), false)
	now = now.Add(500 * time.Millisecond)
	publish(fault)
	publish(fault)
	trace.handlePod(unhealthy, false)
	trace.handleClaim(claim, false)
	trace.handleNode(remediating(v1alpha1.RemediationStepSuggested, record("old")), false)
	trace.handlePod(pod("two", "workload", corev1.PodRunning), false) // before the eviction: not a replacement
	trace.handleNode(remediating(v1alpha1.RemediationStepHold, record("old")), false)
	trace.handlePod(evicted, false)
	trace.handlePod(pod("three", "other", corev1.PodRunning), false)
	trace.handlePod(pod("two", "workload", corev1.PodPending), false)
	unfinished, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too long"))
	err := trace.await(unfinished, gpuTainted, podReplaced, gpuUntainted)
	if err == nil || !strings.Contains(err.Error(), `["replacement pod" "removal of the taint"]`) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("an unfinished trace: %v", err)
	}
	trace.handlePod(pod("two", "workload", corev1.PodRunning), false)
	trace.handlePod(evicted, false) // still terminating
	now = now.Add(10 * time.Second)
	publish()
	trace.handleNode(remediating("", record("new"), record("old")), false)
	want := `     0.5s  taint       gpu.tessera.dev/xid=95:NoSchedule on 1 devices of gpu-0000-00-1e-0
     0.5s  pod         workload-one: allocatedResourcesStatus: claim:gpu: Unhealthy: XID 95
     0.5s  claim       gpu-one: Healthy: False, XID95: XID 95
     0.5s  remediation Suggested: GPU reset
     0.5s  remediation Hold: GPU reset
     0.5s  pod         workload-one evicted
     0.5s  pod         replacement workload-two is running on node2
    10.5s  taint       removed: gpu-0000-00-1e-0 can be allocated again
    10.5s  history     XID 95: Recovered after 9s: reset
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	if err := trace.await(t.Context(), gpuTainted, podUnhealthy, claimUnhealthy, milestone(v1alpha1.RemediationStepSuggested), milestone(v1alpha1.RemediationStepHold),
		podEvicted, podReplaced, gpuUntainted, historyRecorded); err != nil {
		t.Error(err)
	}
}
