package suite

import (
	"context"
	"slices"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// election has lease times that outlast a long interruption: a scheduler that loses its lease exits, and no kubelet
// restarts it here. vacate ends the lease instead of its expiry.
var election = []string{"--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m", "--leader-elect-retry-period=500ms"}

const lease = "kube-scheduler"

// leads waits until a scheduler holds the lease.
func leads(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		held, err := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, lease, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(held.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())))
	}).Should(Succeed())
}

// vacate ends the lease of a scheduler that has exited.
func vacate(ctx context.Context) {
	GinkgoHelper()
	Expect(c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, lease, metav1.DeleteOptions{})).To(Succeed())
}

// bound returns the number of pods of the room that are bound to a node.
func (r room) bound(ctx context.Context) int {
	GinkgoHelper()
	pods := answer(ctx, func(ctx context.Context) (*corev1.PodList, error) {
		return r.Client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{})
	})
	count := 0
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" {
			count++
		}
	}
	return count
}

var _ = Describe("A scheduler that leads", func() {
	It("is followed by the next one when it is killed in the middle of its work", func(ctx context.Context) {
		r := newRoom(ctx)
		withoutScheduler(ctx)
		config := shippedConfig("replace", identity(ctx, cluster.Namespace, cluster.SchedulerName))
		first := startScheduler(ctx, tesseraProgram, config, election...)
		leads(ctx)
		DeferCleanup(vacate) // after the second one has ended as well: later schedulers find a free lease
		startScheduler(ctx, tesseraProgram, config, election...)

		const pods = 16
		for i := range pods {
			r.claim(ctx, named("slice", i), request("slice", migClass, onH100, profile(oneSlice)))
			r.create(ctx, podOf(named("slice", i), stay(), named("slice", i)))
			if i == pods/2 {
				Eventually(ctx, r.bound).WithPolling(10 * time.Millisecond).Should(BeNumerically(">=", pods/4))
				first.end(syscall.SIGKILL)
				vacate(ctx)
			}
		}
		Eventually(ctx, r.bound).Should(Equal(pods))
		held := r.held(ctx)
		Expect(held).To(HaveLen(pods))
		slices.Sort(held)
		Expect(slices.Compact(held)).To(HaveLen(pods), "no device is given away twice")
		foresee(ctx) // also checks that allocations do not overlap

		now := metav1.DeleteOptions{}
		Expect(r.Client.CoreV1().Pods(r.namespace).DeleteCollection(ctx, now, metav1.ListOptions{})).To(Succeed())
		Expect(r.Client.ResourceV1().ResourceClaims(r.namespace).DeleteCollection(ctx, now, metav1.ListOptions{})).To(Succeed())
		all := request("gpus", wholeClass, onH100)
		all.Exactly.Count, all.Exactly.AllocationMode = 8, resourceapi.DeviceAllocationModeExactCount
		r.hold(ctx, "all", all) // the new leader has received the release of every device
		r.release(ctx, "all")
		nothingLeft(ctx)
	})
})
