package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

func TestNodeTrace(t *testing.T) {
	now := time.Unix(0, 0)
	var text strings.Builder
	trace := newNodeTrace(&text, func() time.Time { return now })
	node := func(phase v1alpha1.NodePhase, step v1alpha1.UpgradeStep) *v1alpha1.GPUNode {
		return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: v1alpha1.GPUNodeStatus{
			Phase: phase, Step: step, Reason: "DriverFailed", Message: "it did\n not load",
			Agent: &v1alpha1.AgentStatus{DriverVersion: "580.65.06", GPUs: 8, Product: "H100"},
		}}
	}
	rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "tessera-maintenance-node1"}}
	rule.Spec.Taint.Effect = resourceapi.DeviceTaintEffectNoSchedule
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "user", DeletionTimestamp: &metav1.Time{}}, Spec: corev1.PodSpec{NodeName: "node1"}}
	trace.handlePod(pod, false) // deleted without an eviction
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
	trace.handleNode(node("", ""), false)
	trace.handleNode(node(v1alpha1.PhasePreflight, ""), false)
	now = now.Add(1500 * time.Millisecond)
	trace.handleNode(node(v1alpha1.PhaseReady, ""), false)
	trace.handleNode(node(v1alpha1.PhaseReady, ""), false)
	trace.handleTaintRule(rule, false)
	drain := node(v1alpha1.PhaseUpgrading, v1alpha1.StepDrain)
	drain.Status.Reason = "Draining"
	trace.handleNode(drain, false)
	trace.handlePod(pod, false)
	trace.handlePod(pod, true)
	swap := node(v1alpha1.PhaseUpgrading, v1alpha1.StepOperate)
	swap.Spec.Driver = &v1alpha1.DesiredDriver{Version: "580.65.06"}
	trace.handleNode(swap, false)
	trace.handleNode(node(v1alpha1.PhaseRolledBack, ""), false)
	trace.handleTaintRule(rule, true)
	want := `     0.0s  node1   Preflight
     1.5s  node1   Ready: driver 580.65.06, 8 × H100
     1.5s  node1   DeviceTaintRule tessera-maintenance-node1: NoSchedule
     1.5s  node1   Upgrading: evict pods with GPUs
     1.5s  node1   pod default/user evicted
     1.5s  node1   Upgrading: install driver 580.65.06: DriverFailed: it did not load
     1.5s  node1   RolledBack: DriverFailed: it did not load
     1.5s  node1   DeviceTaintRule tessera-maintenance-node1 deleted
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}
