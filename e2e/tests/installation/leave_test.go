package installation

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

func leaves() {
	It("A15: refuses to be uninstalled under claims that are in use, and then removes its operands in order", func(ctx context.Context) {
		r := newRoom(ctx)
		r.claim(ctx, "gpu", wholeClass)
		r.deploy(ctx, "user", r.spec(hopper, "gpu"))
		pod := r.awaitRunning(ctx, "user", hopper)

		Expect(c.RemoveChart(ctx)).NotTo(Succeed())
		Expect(r.awaitRunning(ctx, "user", hopper).UID).To(Equal(pod.UID), "the pod that uses a GPU")
		Expect(hardware(hopper).DriverLoaded).To(BeTrue())
		Expect(operand(ctx, "tessera-node", hopper)).NotTo(BeEmpty())

		By("removing the pod that uses a GPU; another one waits for a GPU that no node has")
		r.deploy(ctx, "waiting", requesting("nvidia.com/gpu", 100))
		Eventually(ctx, func(ctx context.Context) (*corev1.Pod, error) { return r.only(ctx, "waiting") }).ShouldNot(BeNil())
		r.remove(ctx, "user")
		Expect(c.RemoveChart(ctx)).To(Succeed())
		Expect(assigned(ctx)).To(BeFalse(), "no new pod is assigned to a scheduler that does not exist")
		left, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.schedulerName=tessera-scheduler,status.phase=Pending"})
		Expect(err).NotTo(HaveOccurred())
		keep := 0
		if lab.RunsOwnScheduler(c.Kubernetes()) {
			keep = 1
		}
		Expect(left.Items).To(HaveLen(keep), "the command in docs/uninstall.md lists the pods that keep their scheduler")
		for _, name := range bare() {
			Eventually(ctx, func() bool { return hardware(name).DriverLoaded }).Should(BeFalse(), "the driver of %s", name)
		}
		Eventually(ctx, func(ctx context.Context) (int, error) {
			sets, err := c.Client.AppsV1().DaemonSets(cluster.Namespace).List(ctx, metav1.ListOptions{})
			return len(sets.Items), err
		}).Should(BeZero())
		// Kubelet deletes the ResourceSlices of a driver some time after it has deregistered.
		Eventually(ctx, func(ctx context.Context) (int, error) {
			slices, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
			return len(slices.Items), err
		}).Should(BeZero())
	}, limit)
}
