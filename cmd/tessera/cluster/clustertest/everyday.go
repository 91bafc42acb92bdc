package clustertest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
)

const gi = 1 << 30

// Everyday returns a cluster with two nodes, GPUs in every shape and claims in every state.
func Everyday(tb testing.TB) *Scene {
	tb.Helper()
	s := New(tb)
	for _, class := range []string{"gpu.tessera.dev", "mig.tessera.dev", "timeshare.tessera.dev", "mps.tessera.dev", "monitor.tessera.dev"} {
		s.Class(class)
	}
	big := s.Node("gpu-a", "h100x8", func(n *gpu.Node) { n.GPUs[2].Withheld = gpu.SpanMask(1, 1) })
	small := s.Node("gpu-b", "t4x1", nil)

	train := s.Claim("train", "gpu.tessera.dev", Result(big, 0, gpu.Use{Shape: gpu.Whole}), Result(big, 1, gpu.Use{Shape: gpu.Whole}))
	s.Pod("train-0", "gpu-a", corev1.PodRunning, train)
	for i, c := range []struct {
		name string
		use  gpu.Use
	}{{"embed", MIGUse(19, 0, 1)}, {"chat", MIGUse(14, 2, 2)}} {
		claim := s.Claim(c.name, "mig.tessera.dev", Result(big, 2, c.use))
		phase := corev1.PodRunning
		if i > 0 {
			phase = corev1.PodPending
			Report(claim, 0, "", metav1.Condition{Status: metav1.ConditionFalse, Reason: "Refused", Message: "held by claim demo/old, being released"})
		} else {
			Report(claim, 0, "MIG-6c8b2a4e-0000-5000-8000-000000000001", metav1.Condition{Status: metav1.ConditionTrue, Reason: "Prepared"})
		}
		s.Pod(c.name+"-0", "gpu-a", phase, claim)
	}
	s.Claim("spare", "mig.tessera.dev", Result(big, 2, MIGUse(14, 4, 2)))
	s.share(big, 3, gpu.TimeShare, map[string]gpu.Share{"notebook-a": {MemoryBytes: 24 * gi, Shares: 1}, "notebook-b": {MemoryBytes: 8 * gi, Shares: 1}, "notebook-c": {MemoryBytes: 20 * gi, Shares: 2}})
	s.share(big, 4, gpu.MPS, map[string]gpu.Share{"infer-a": {MemoryBytes: 40 * gi, Shares: 1, Compute: 50}, "infer-b": {MemoryBytes: 20 * gi, Shares: 1, Compute: 25}})
	watch := s.Claim("watch", "monitor.tessera.dev", Result(big, 2, gpu.Use{Shape: gpu.Monitor}))
	s.Pod("exporter", "gpu-a", corev1.PodRunning, watch)

	whole := s.Claim("render", "gpu.tessera.dev", Result(small, 0, gpu.Use{Shape: gpu.Whole}))
	s.Pod("render-0", "gpu-b", corev1.PodRunning, whole)

	waiting := s.Claim("large", "gpu.tessera.dev")
	pod := s.Pod("large-0", "", corev1.PodPending, waiting)
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
		Message: "0/2 nodes are available: 2 cannot allocate all claims.",
	}}
	s.Claim("unused", "gpu.tessera.dev")
	return s
}

// share adds a claim and a pod per name, in alphabetical order, that share a GPU.
func (s *Scene) share(n gpu.Node, index int, shape gpu.Shape, shares map[string]gpu.Share) {
	for _, name := range []string{"infer-a", "infer-b", "notebook-a", "notebook-b", "notebook-c"} {
		share, wanted := shares[name]
		if !wanted {
			continue
		}
		result := Result(n, index, gpu.Use{Shape: shape, Share: share})
		id := types.UID("share-" + name)
		result.ShareID = &id
		claim := s.Claim(name, shape.String()+".tessera.dev", []resourceapi.DeviceRequestAllocationResult{result}...)
		s.Pod(name, n.Name, corev1.PodRunning, claim)
	}
}
