package installation

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

func changesMIGModes() {
	It("A18: gives up a change of the MIG mode that pods are in the way of, leaves the node in service, and makes it when they are gone", func(ctx context.Context) {
		Expect(enabled(ampere)).To(Equal(2), "GPUs in MIG mode before")
		r := newRoom(ctx)
		r.claim(ctx, "gpu", wholeClass)
		r.deploy(ctx, "kept", r.spec(ampere, "gpu"))
		pod := r.awaitRunning(ctx, "kept", ampere)
		_, err := c.Client.PolicyV1().PodDisruptionBudgets(r.name).Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "kept"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		edit(ctx, func(p *v1alpha1.ClusterPolicy) {
			p.Spec.NodeAgent.Pools = []v1alpha1.NodePool{{
				Name: "sliced", NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": ampere}}, MIGMode: v1alpha1.MIGEnabled,
			}}
		})
		Eventually(ctx, func(ctx context.Context) (string, error) { return where(ctx, ampere) }).Should(ContainSubstring("DrainBlocked"))
		Expect(r.awaitRunning(ctx, "kept", ampere).UID).To(Equal(pod.UID))
		Expect(enabled(ampere)).To(Equal(2))

		Expect(c.Client.PolicyV1().PodDisruptionBudgets(r.name).Delete(ctx, "kept", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, func() int { return enabled(ampere) }).Should(Equal(4))
		stands(ctx, ampere, v1alpha1.PhaseReady, cluster.NewDriver)
		Expect(taintedNodes(ctx)).To(BeEmpty())

		sliced := newRoom(ctx)
		sliced.claim(ctx, "slice", migClass)
		sliced.deploy(ctx, "slice", sliced.spec(ampere, "slice"))
		sliced.awaitRunning(ctx, "slice", ampere)
	}, limit)
}

// enabled returns the number of GPUs of a node in MIG mode.
func enabled(name string) int {
	GinkgoHelper()
	count := 0
	for _, gpu := range hardware(name).GPUs {
		if gpu.MIG {
			count++
		}
	}
	return count
}
