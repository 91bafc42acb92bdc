package suite

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// killedInside delays one NVML function of a node, starts an operation that calls it, waits until the record has the
// state, and kills the agent during the call, which lasts longer than any timeout.
func killedInside(ctx context.Context, on *lab.Node, function, state string, start func()) {
	GinkgoHelper()
	Expect(fakegpu.Slow(on.GPUFolder(), function, 2*harness.Patience)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(fakegpu.Reset(on.GPUFolder())).To(Succeed())
		if CurrentSpecReport().Failed() { // a call in progress continues
			crash(ctx, on)
		}
	})
	pod := agent(ctx, on.Name())
	start()
	Eventually(ctx, func(ctx context.Context) (string, error) {
		out, err := on.Exec(ctx, "busybox", "grep", "-rhsoE", `"state": ?"[A-Za-z]+"`, recordsDir)
		return string(out), err
	}).Should(ContainSubstring(state))
	kill(ctx, on, pod)
	Expect(fakegpu.Reset(on.GPUFolder())).To(Succeed())
	renew(ctx, on, pod)
}

// These specs kill the agent during one call of each kind in a real cluster. e2e/tests/agent kills the agent at every
// step and in every function of NVML.
var _ = Describe("The agent, killed", func() {
	It("in the creation of a GPU instance, prepares the claim after its restart", func(ctx context.Context) {
		r := newRoom(ctx)
		on := node("node1")
		r.hold(ctx, "neighbor", request("slice", migClass, onParent(hardware(on).GPUs[1].UUID), profile(oneSlice)))
		neighbor := container(r.running(ctx, "neighbor"))

		killedInside(ctx, on, "nvmlDeviceCreateGpuInstanceWithPlacement", "Preparing", func() {
			r.claim(ctx, "mine", request("slice", migClass, onParent(first()), profile(twoSlices)))
			r.create(ctx, podOf("mine", stay(), "mine"))
		})

		r.running(ctx, "mine")
		Expect(r.seen(ctx, "mine")).To(HaveLen(1))
		Expect(count(ctx, on).Instances).To(HaveLen(2))
		Expect(container(r.running(ctx, "neighbor"))).To(Equal(neighbor))
		r.release(ctx, "mine")
		r.release(ctx, "neighbor")
		nothingLeft(ctx)
	})

	It("in the destruction of a GPU instance, frees the device after its restart", func(ctx context.Context) {
		r := newRoom(ctx)
		on := node("node1")
		r.hold(ctx, "neighbor", request("slice", migClass, onParent(first()), profile(oneSlice)))
		neighbor := container(r.running(ctx, "neighbor"))
		r.hold(ctx, "mine", request("slice", migClass, onParent(first()), profile(twoSlices)))

		killedInside(ctx, on, "nvmlGpuInstanceDestroy", "Unpreparing", func() {
			Expect(r.Client.CoreV1().Pods(r.namespace).Delete(ctx, "mine", metav1.DeleteOptions{})).To(Succeed())
		})

		Eventually(ctx, func(ctx context.Context) []string { return count(ctx, on).Instances }).Should(HaveLen(1))
		Expect(container(r.running(ctx, "neighbor"))).To(Equal(neighbor))
		r.release(ctx, "neighbor")
		Expect(r.Client.ResourceV1().ResourceClaims(r.namespace).Delete(ctx, "mine", metav1.DeleteOptions{})).To(Succeed())
		nothingLeft(ctx)
	})
})
