package suite

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// container returns the ID of the pod's container, which changes with a restart.
func container(pod *corev1.Pod) string {
	GinkgoHelper()
	Expect(pod.Status.ContainerStatuses).NotTo(BeEmpty())
	return pod.Status.ContainerStatuses[0].ContainerID
}

// crash kills the agent's process on a node and then deletes the pod, so that the next one starts without backoff. It
// returns when the next pod is ready.
func crash(ctx context.Context, on *lab.Node) {
	GinkgoHelper()
	pod := agent(ctx, on.Name())
	kill(ctx, on, pod)
	renew(ctx, on, pod)
}

func kill(ctx context.Context, on *lab.Node, agent corev1.Pod) {
	GinkgoHelper()
	id := agent.Status.ContainerStatuses[0].ContainerID
	const scheme = "containerd://"
	Expect(id).To(HavePrefix(scheme))
	_, err := on.Exec(ctx, "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id[len(scheme):])
	Expect(err).NotTo(HaveOccurred())
}

func renew(ctx context.Context, on *lab.Node, old corev1.Pod) {
	GinkgoHelper()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	Expect(c.Client.CoreV1().Pods(cluster.Namespace).Delete(ctx, old.Name, now)).To(Succeed())
	Eventually(ctx, func(ctx context.Context) string { return agent(ctx, on.Name()).Name }).ShouldNot(Equal(old.Name))
}

// restartKubelet restarts kubelet and returns when all ResourceSlices of the node are published again with new UIDs: a
// starting kubelet deletes the existing ones.
func restartKubelet(ctx context.Context, on *lab.Node) {
	GinkgoHelper()
	before := uids(ctx, on)
	Expect(on.RestartService(ctx, lab.Kubelet)).To(Succeed())
	Eventually(ctx, func(ctx context.Context) []string { return uids(ctx, on) }).ShouldNot(ContainElement(BeElementOf(before)))
}

var _ = Describe("A running pod", func() {
	DescribeTable("keeps its device", func(ctx context.Context, disturb func(context.Context, *lab.Node)) {
		r := newRoom(ctx)
		slice := request("slice", migClass, onH100, profile(twoSlices))
		before := r.hold(ctx, "steady", slice)
		on := node(before.Spec.NodeName)
		device := r.seen(ctx, "steady")

		disturb(ctx, on)

		r.hold(ctx, "later", slice)
		after := r.running(ctx, "steady")
		Expect(container(after)).To(Equal(container(before)), "the container was restarted")
		gi, _ := ids(on, device[0])
		Expect(gi).To(BeNumerically(">", 0), "its MIG device is there")
		r.release(ctx, "steady")
		r.release(ctx, "later")
		nothingLeft(ctx)
	},
		Entry("while kubelet restarts", restartKubelet),
		Entry("while containerd restarts", func(ctx context.Context, on *lab.Node) {
			Expect(on.RestartService(ctx, lab.Containerd)).To(Succeed())
		}),
		Entry("while the agent crashes", crash),
		Entry("while the API server is away for a minute", func(ctx context.Context, on *lab.Node) {
			instances := len(hardware(on).GPUs[0].Instances)
			Expect(c.ControlPlane().StopService(ctx, lab.APIServer)).To(Succeed())
			Consistently(ctx, func() int { return len(hardware(on).GPUs[0].Instances) }).
				WithTimeout(time.Minute).WithPolling(time.Second).Should(Equal(instances))
			Expect(c.ControlPlane().StartService(ctx, lab.APIServer)).To(Succeed())
			// A client retries a watch after up to a minute (client-go's backoff), and once more if the API server
			// rejects it before it has loaded the roles.
			r := newRoom(ctx)
			r.create(ctx, podOf("first", withoutDriver()))
			r.running(ctx, "first")
		}),
	)
})

var _ = Describe("A node", func() {
	It("publishes its slices again after kubelet has wiped them", func(ctx context.Context) {
		restartKubelet(ctx, node("node1"))
	})

	It("prepares claims anew after a reboot and drops what it knew", func(ctx context.Context) {
		r := newRoom(ctx)
		r.claim(ctx, "survivor", request("slice", migClass, onH100, profile(twoSlices)))
		pod := podOf("survivor", stay(), "survivor")
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		r.create(ctx, pod)
		before := r.running(ctx, "survivor")
		on := node(before.Spec.NodeName)
		old := r.seen(ctx, "survivor")[0]

		// This pod is deleted while the node is down: its record is of another boot and of no existing claim.
		stale := podOf("stale", stay(), "stale")
		r.claim(ctx, "stale", request("slice", migClass, onH100, profile(oneSlice)))
		r.create(ctx, stale)
		r.running(ctx, "stale")

		Expect(on.Kill(ctx)).To(Succeed())
		Expect(on.Start(ctx)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) (string, error) {
			after, err := r.pod(ctx, "survivor")
			if err != nil || after.Status.Phase != corev1.PodRunning || len(after.Status.ContainerStatuses) == 0 {
				return container(before), err
			}
			if after.Status.ContainerStatuses[0].State.Running == nil {
				return container(before), nil
			}
			return after.Status.ContainerStatuses[0].ContainerID, nil
		}).ShouldNot(Equal(container(before)))
		again := r.seen(ctx, "survivor")[0]
		// The MIG device is a new one, because none survives a power cycle; the driver derives its UUID from GPU and place.
		Expect(again.UUID).To(Equal(old.UUID), "the new MIG device is at the place of the old one")
		Expect(again.Profile).To(Equal(old.Profile))
		ids(on, again)

		r.release(ctx, "survivor")
		r.release(ctx, "stale")
		nothingLeft(ctx)
	}, atMost)
})

// uids returns the UIDs of a node's ResourceSlices after all are published. A recreated ResourceSlice has a new UID.
func uids(ctx context.Context, on *lab.Node) []string {
	GinkgoHelper()
	var list []string
	for _, slice := range pool(ctx, on) {
		list = append(list, string(slice.UID))
	}
	return list
}
