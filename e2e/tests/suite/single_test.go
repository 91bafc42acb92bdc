package suite

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/tests/specs"
)

// This is a minimal cluster: its only node is tainted as a control plane, and its only GPU does not support MIG.
var _ = Describe("A single-node cluster with a T4", func() {
	It("serves the GPU whole, once, to pods that tolerate the control plane", func(ctx context.Context) {
		folder := specs.Folder("suite-single")
		Expect(lab.Down(ctx, folder)).To(Succeed(), "what an earlier run left behind")
		DeferCleanup(lab.Down, folder)
		const controlPlane = "node-role.kubernetes.io/control-plane"
		one, err := cluster.Up(ctx, cluster.Config{
			Folder: folder,
			Nodes: []lab.NodeSpec{{
				Name: "only", GPU: "t4x1",
				Taints: []corev1.Taint{{Key: controlPlane, Effect: corev1.TaintEffectNoSchedule}},
			}},
			Images:   images,
			Progress: GinkgoWriter,
		})
		Expect(err).NotTo(HaveOccurred())

		r := newRoomIn(ctx, one)
		tolerant := func(name string) *corev1.Pod {
			pod := podOf(name, stay(), name)
			pod.Spec.Tolerations = []corev1.Toleration{{Key: controlPlane, Operator: corev1.TolerationOpExists}}
			return pod
		}
		r.claim(ctx, "first", request("gpu", wholeClass))
		r.create(ctx, tolerant("first"))
		r.running(ctx, "first")
		seen := r.seen(ctx, "first")
		Expect(seen).To(HaveLen(1))
		Expect(seen[0].Name).To(ContainSubstring("T4"))

		r.claim(ctx, "second", request("gpu", wholeClass))
		r.create(ctx, tolerant("second"))
		r.pending(ctx, "second")
		r.release(ctx, "first")
		r.running(ctx, "second")

		r.claim(ctx, "slice", request("slice", migClass))
		r.create(ctx, tolerant("slice"))
		r.pending(ctx, "slice")
	}, atMost)
})
