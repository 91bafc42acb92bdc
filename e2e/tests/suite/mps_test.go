package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// CUDA error codes of a program.
const (
	outOfMemory = 2
	noDevice    = 46  // another program holds the device
	serverLost  = 806 // the MPS server has ended
)

// client is a pod whose program uses the GPU until a call fails, and then restarts, as a server does. Every run prints
// its usage and its errors. Before a restart it waits until the next daemon has a server: a program that starts without
// a daemon gets the GPU exclusively, and prevents the start of the next daemon.
func client(name string) *corev1.Pod {
	const served = "echo get_server_list | nvidia-cuda-mps-control | grep -q '^[0-9]'"
	return podOf(name, []string{"sh", "-c", "while true; do probe share all 3600; sleep 3; until " + served + "; do sleep 1; done; done"}, name)
}

// life is the output of one run of a client: a line of usage, or one of errors.
type life struct {
	expect.Usage
	Failed string
	Error  int
}

// lives returns the output of a client's runs.
func (r room) lives(ctx context.Context, name string) []life {
	GinkgoHelper()
	text := answer(ctx, func(ctx context.Context) (string, error) { return r.log(ctx, name) })
	var all []life
	for line := range strings.Lines(text) {
		var one life
		if json.Unmarshal([]byte(line), &one) == nil {
			all = append(all, one)
		}
	}
	return all
}

// uses waits until the client's last run uses the GPU, and returns its usage.
func (r room) uses(ctx context.Context, name string) expect.Usage {
	GinkgoHelper()
	r.running(ctx, name)
	var last life
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		all := r.lives(ctx, name)
		g.Expect(all).NotTo(BeEmpty(), r.why(ctx, name))
		last = all[len(all)-1]
		g.Expect(last.Devices).NotTo(BeEmpty(), "%s says %+v", name, all)
	}).Should(Succeed())
	return last.Usage
}

// failures returns the error codes of the client's runs.
func (r room) failures(ctx context.Context, name string) []int {
	GinkgoHelper()
	var codes []int
	for _, one := range r.lives(ctx, name) {
		if one.Failed != "" {
			codes = append(codes, one.Error)
		}
	}
	return codes
}

// daemonsOf returns the pods of a node's MPS daemons, including terminating ones.
func daemonsOf(ctx context.Context, on *lab.Node) ([]corev1.Pod, error) {
	pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + on.Name(), LabelSelector: "app.kubernetes.io/name=tessera-mps",
	})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// noDaemon waits until a node has no MPS daemon.
func noDaemon(ctx context.Context, on *lab.Node) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) ([]corev1.Pod, error) { return daemonsOf(ctx, on) }).Should(BeEmpty())
}

// daemonOf returns the pod of a node's only MPS daemon, after those of earlier claims are deleted.
func daemonOf(ctx context.Context, on *lab.Node) (daemon corev1.Pod) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		pods, err := daemonsOf(ctx, on)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).To(HaveLen(1))
		daemon = pods[0]
	}).Should(Succeed())
	return daemon
}

// killControl kills the node's MPS control daemons with SIGKILL.
func killControl(ctx context.Context, on *lab.Node) {
	GinkgoHelper()
	out, err := on.Exec(ctx, "pkill", "-KILL", "-f", "nvidia-cuda-mps-control -f")
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// part matches a usage with the given memory in MiB and number of multiprocessors.
func part(memory int64, multiprocessors int) func(expect.Usage) bool {
	return func(u expect.Usage) bool {
		return u.AllocatedMiB == memory && u.Refused == outOfMemory && len(u.Devices) == 1 && u.Devices[0].Multiprocessors == multiprocessors
	}
}

// third is a share of which three fit on a GPU: 25% of 132 multiprocessors, rounded to pairs.
func third(uuid string) resourceapi.DeviceRequest { return share(mpsClass, uuid, "20Gi", "25") }

var aThird = part(20<<10, 32)

// threeClients runs three clients on a GPU of node1 and returns them.
func (r room) threeClients(ctx context.Context, uuid string) []string {
	GinkgoHelper()
	names := []string{"a", "b", "c"}
	for _, name := range names {
		r.claim(ctx, name, third(uuid))
		r.create(ctx, client(name))
		if !lab.RunsOwnScheduler(c.Kubernetes()) {
			// kube-scheduler counts the capacity of an allocation twice while it writes it, and retries a share that does not fit then minutes later.
			r.running(ctx, name)
		}
	}
	for _, name := range names {
		Expect(r.uses(ctx, name)).To(Satisfy(aThird))
	}
	return names
}

var _ = Describe("MPS", func() {
	It("holds each of three shares to its part of one GPU, and ends with the last of them", func(ctx context.Context) {
		r, on := newRoom(ctx), node("node1")
		gpu := hardware(on).GPUs[0]
		names := r.threeClients(ctx, gpu.UUID)
		Expect(hardware(on).GPUs[0].ComputeMode).To(Equal(fakegpu.ComputeExclusiveProcess))
		daemonOf(ctx, on)
		noDaemon(ctx, node("node2"))

		r.claim(ctx, "fourth", share(mpsClass, gpu.UUID, "30Gi", ""))
		r.create(ctx, client("fourth"))
		r.pending(ctx, "fourth")
		r.release(ctx, names[0])
		r.running(ctx, "fourth")
		Expect(r.uses(ctx, "fourth")).To(Satisfy(part(30<<10, 132)))
		for _, name := range []string{names[1], names[2]} {
			Expect(r.failures(ctx, name)).To(BeEmpty(), "who was there before notices nothing")
		}
		for _, name := range []string{names[1], names[2], "fourth"} {
			r.release(ctx, name)
		}
		nothingLeft(ctx)
		noDaemon(ctx, on)
	})

	It("gives nothing to a program that goes around the daemon", func(ctx context.Context) {
		r, on := newRoom(ctx), node("node1")
		gpu := hardware(on).GPUs[0]
		r.claim(ctx, "hostile", third(gpu.UUID))
		// The pod is the first on the GPU and ignores the daemon's pipe directory.
		hostile := podOf("hostile", []string{"sh", "-c", "CUDA_MPS_PIPE_DIRECTORY=/nowhere probe share all 1; sleep 3600"}, "hostile")
		r.create(ctx, hostile)
		r.running(ctx, "hostile")
		Eventually(ctx, func(ctx context.Context) []int { return r.failures(ctx, "hostile") }).Should(ConsistOf(noDevice))
		r.claim(ctx, "careful", third(gpu.UUID))
		r.create(ctx, client("careful"))
		Expect(r.uses(ctx, "careful")).To(Satisfy(aThird))
	})

	It("lets clients run while the agent is restarted", func(ctx context.Context) {
		r, on := newRoom(ctx), node("node1")
		names := r.threeClients(ctx, hardware(on).GPUs[0].UUID)
		daemon := daemonOf(ctx, on).UID
		crash(ctx, on)
		r.hold(ctx, "later", share(mpsClass, hardware(on).GPUs[0].UUID, "5Gi", "10"))
		for _, name := range names {
			Expect(r.lives(ctx, name)).To(HaveLen(1), name)
		}
		Expect(daemonOf(ctx, on).UID).To(Equal(daemon))
		for _, name := range append(names, "later") {
			r.release(ctx, name)
		}
		nothingLeft(ctx)
	})

	It("comes back when the daemon dies: clients fail, are told why, and work again", func(ctx context.Context) {
		r, on := newRoom(ctx), node("node1")
		names := r.threeClients(ctx, hardware(on).GPUs[0].UUID)
		killControl(ctx, on)
		for _, name := range names {
			Eventually(ctx, func(ctx context.Context) []int { return r.failures(ctx, name) }).Should(ContainElement(serverLost))
			r.refused(ctx, name, "MPSDaemonRestarted")
			Expect(r.uses(ctx, name)).To(Satisfy(aThird))
			r.release(ctx, name)
		}
		nothingLeft(ctx)
	})

	It("comes back when somebody deletes the daemon's pod", func(ctx context.Context) {
		r, on := newRoom(ctx), node("node1")
		gpu := hardware(on).GPUs[0]
		// The program does not restart by itself: the first program without a daemon gets the GPU exclusively.
		r.claim(ctx, "a", third(gpu.UUID))
		r.create(ctx, podOf("a", []string{"sh", "-c", "probe share all 3600; sleep 3600"}, "a"))
		Expect(r.uses(ctx, "a")).To(Satisfy(aThird))
		old := daemonOf(ctx, on)
		Expect(c.Client.CoreV1().Pods(cluster.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, func(ctx context.Context) []int { return r.failures(ctx, "a") }).Should(ContainElement(serverLost))
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			daemon := daemonOf(ctx, on)
			g.Expect(daemon.UID).NotTo(Equal(old.UID))
			g.Expect(isReady(daemon)).To(BeTrue())
		}).Should(Succeed())
		r.refused(ctx, "a", "MPSDaemonRestarted")
		r.claim(ctx, "b", third(gpu.UUID))
		r.create(ctx, client("b"))
		Expect(r.uses(ctx, "b")).To(Satisfy(aThird))
		r.release(ctx, "a")
		r.release(ctx, "b")
		nothingLeft(ctx)
	})

	It("serves its claims again after a reboot of the node", func(ctx context.Context) {
		r, on := newRoom(ctx), node("node1")
		gpu := hardware(on).GPUs[0]
		r.claim(ctx, "survivor", third(gpu.UUID))
		pod := client("survivor")
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		r.create(ctx, pod)
		Expect(r.uses(ctx, "survivor")).To(Satisfy(aThird))
		before := container(r.running(ctx, "survivor"))
		Expect(on.Kill(ctx)).To(Succeed())
		Expect(on.Start(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			after, err := r.pod(ctx, "survivor")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(container(after)).NotTo(Equal(before))
			g.Expect(after.Status.ContainerStatuses[0].State.Running).NotTo(BeNil())
		}).Should(Succeed())
		Expect(r.uses(ctx, "survivor")).To(Satisfy(aThird))
		r.release(ctx, "survivor")
		nothingLeft(ctx)
	}, atMost)
})

var _ = Describe("A GPU", func() {
	It("is idle after the last release in every shape, and then of any other", func(ctx context.Context) {
		r, on := newRoom(ctx), node("node1")
		uuid := hardware(on).GPUs[0].UUID
		private := configured("private", driver, `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig","mps":{"activeThreadPercentage":50}}`,
			request("gpu", wholeClass, onGPU(uuid)))
		shapes := []*resourceapi.ResourceClaim{
			claimOf("mps", third(uuid)), claimOf("mig", request("slice", migClass, onParent(uuid), profile(threeSlices))),
			timed("timeshare", uuid, "Long"), claimOf("whole", request("gpu", wholeClass, onGPU(uuid))), private,
		}
		waiting := ""
		for i := range 2 * len(shapes) {
			// The next shape waits for the GPU until the previous one is released. The second round uses another order.
			claim := shapes[(i+i/len(shapes)*i)%len(shapes)].DeepCopy()
			claim.Name = fmt.Sprintf("%s-%d", claim.Name, i)
			Expect(r.make(ctx, claim)).To(Succeed())
			r.create(ctx, podOf(claim.Name, stay(), claim.Name))
			if waiting != "" {
				r.release(ctx, waiting)
			}
			r.running(ctx, claim.Name)
			Expect(r.seen(ctx, claim.Name)).To(HaveLen(1))
			waiting = claim.Name
		}
		r.release(ctx, waiting)
		nothingLeft(ctx)
	}, atMost)
})
