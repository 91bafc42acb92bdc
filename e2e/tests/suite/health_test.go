package suite

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// These specs cover unhealthy GPUs in a real cluster: published taints, the health that kubelet reports in the status
// of pods, the placement of new pods, and running pods. e2e/tests/agent covers every signal with every shape, and
// crashes, without a cluster.
var _ = Describe("The health of GPUs", Ordered, ContinueOnFailure, func() {
	var (
		on    *lab.Node
		r     room
		first map[string]string // the pods' containers
		took  = times{}
	)
	// An XID is transient and may end before every observer has seen its effect: it is injected repeatedly.
	const often = 300 * time.Millisecond
	// brief has rules with a short quiet period, also for two XIDs.
	brief := map[string]any{"quietPeriod": "1s", "xids": []map[string]any{
		{"code": 901, "severity": "Fatal", "remedy": "Wait"}, {"code": 902, "severity": "Warning", "remedy": "Wait"},
	}}

	BeforeAll(func(ctx context.Context) {
		on = node("node1")
		r = newRoom(ctx)
		DeferCleanup(cured, on)
		DeferCleanup(reconfigure, on, configuration(ctx))
		judge(ctx, on, brief)
		r.holdShapes(ctx, on)
		first = map[string]string{}
		for name := range shaped() {
			first[name] = container(r.running(ctx, name))
		}
		r.tells(ctx, corev1.ResourceHealthStatusHealthy, "slice", "neighbour", "turns", "mps", "whole")
	}, atMost)

	AfterAll(took.say)

	// show injects a signal into GPUs.
	show := func(inject func(string, int) error, indices ...int) error {
		for _, i := range indices {
			if err := inject(on.GPUFolder(), i); err != nil {
				return err
			}
		}
		return nil
	}
	// reaches checks which devices, claims and pods a new signal of GPUs affects.
	reaches := func(ctx context.Context, signal gpu.Signal, mark string, sick bool, indices ...int) {
		GinkgoHelper()
		begin := time.Now()
		marked(ctx, on, signal, onGPUs(on, mark, indices...))
		took["the taint is published"] = append(took["the taint is published"], time.Since(begin))
		var unwell []string
		for _, name := range []string{"mps", "neighbour", "slice", "turns", "whole"} {
			for _, i := range indices {
				if shaped()[name] == i && sick {
					unwell = append(unwell, name)
				}
			}
		}
		r.tells(ctx, corev1.ResourceHealthStatusUnhealthy, unwell...)
		if sick {
			took["every pod's status says it"] = append(took["every pod's status says it"], time.Since(begin))
		}
		Eventually(ctx, r.unwell).Should(Equal(unwell))
		for name := range shaped() {
			Expect(container(r.running(ctx, name))).To(Equal(first[name]), "pod %s was disturbed", name)
		}
	}
	all := []int{sliced, turned, served, whole}
	xid := func(code int) func(string, int) error {
		return func(folder string, i int) error { return fakegpu.XID(folder, fakegpu.On(i), code) }
	}

	DescribeTable("a signal that passes reaches every shape, and is gone with its cause", func(ctx context.Context, signal gpu.Signal, mark string, sick bool, inject func(string, int) error) {
		end := harness.Again(ctx, often, func() error { return show(inject, all...) })
		reaches(ctx, signal, mark, sick, all...)
		Expect(end()).To(Succeed())
		Expect(fakegpu.Reset(on.GPUFolder())).To(Succeed())
		marked(ctx, on, signal, nowhere)
		r.tells(ctx, corev1.ResourceHealthStatusHealthy, "slice", "neighbour", "turns", "mps", "whole")
		Eventually(ctx, r.unwell).Should(BeEmpty())
	},
		Entry("an XID that is fatal", gpu.SignalXID, "901 NoSchedule", true, xid(901)),
		Entry("an XID that is a warning", gpu.SignalXID, "902 None", false, xid(902)),
		Entry("no answer", gpu.SignalLost, "NoSchedule", true, fakegpu.RequireReset),
		Entry("heat", gpu.SignalHeat, "None", false, func(folder string, i int) error { return fakegpu.SlowDown(folder, i, fakegpu.HeatBrake) }),
		Entry("power", gpu.SignalPower, "None", false, func(folder string, i int) error { return fakegpu.SlowDown(folder, i, fakegpu.PowerBrake) }),
	)

	It("keeps new pods off a sick GPU, and gives it to them when it is well", func(ctx context.Context) {
		sick := []int{4, 5, 6}
		DeferCleanup(fakegpu.Reset, on.GPUFolder())
		for _, i := range sick {
			Expect(fakegpu.RequireReset(on.GPUFolder(), i)).To(Succeed())
		}
		marked(ctx, on, gpu.SignalLost, onGPUs(on, "NoSchedule", sick...))
		other := newRoom(ctx)
		held := other.hold(ctx, "one", request("gpu", wholeClass, onH100))
		Expect(held.Spec.NodeName).To(Equal(on.Name()))
		Expect(other.seen(ctx, "one")).To(ConsistOf(HaveField("UUID", hardware(on).GPUs[7].UUID)))
		other.claim(ctx, "two", request("gpu", wholeClass, onH100))
		other.create(ctx, podOf("two", stay(), "two"))
		other.pending(ctx, "two")
		Expect(fakegpu.Reset(on.GPUFolder())).To(Succeed())
		other.running(ctx, "two")
	})

	It("leaves a slice's neighbours alone", func(ctx context.Context) {
		slice := r.seen(ctx, "slice")[0]
		gi, ci := ids(on, slice)
		end := harness.Again(ctx, often, func() error {
			return fakegpu.XID(on.GPUFolder(), fakegpu.Place{GPU: sliced, Instance: gi, Compute: ci}, 901)
		})
		r.tells(ctx, corev1.ResourceHealthStatusUnhealthy, "slice")
		r.tells(ctx, corev1.ResourceHealthStatusHealthy, "neighbour")
		Eventually(ctx, r.unwell).Should(Equal([]string{"slice"}))
		r.hold(ctx, "later", request("slice", migClass, onParent(hardware(on).GPUs[sliced].UUID), profile(oneSlice)))
		r.release(ctx, "later")
		Expect(end()).To(Succeed())
		marked(ctx, on, gpu.SignalXID, nowhere)
		r.tells(ctx, corev1.ResourceHealthStatusHealthy, "slice")
	})

	It("counts what ended with a program as over when its pod is gone", func(ctx context.Context) {
		Expect(xid(94)(on.GPUFolder(), whole)).To(Succeed())
		marked(ctx, on, gpu.SignalXID, onGPUs(on, "94 NoSchedule", whole))
		r.tells(ctx, corev1.ResourceHealthStatusUnhealthy, "whole")
		r.release(ctx, "whole")
		marked(ctx, on, gpu.SignalXID, nowhere)
		r.hold(ctx, "whole", request("gpu", wholeClass, onGPU(hardware(on).GPUs[whole].UUID)))
		first["whole"] = container(r.running(ctx, "whole"))
		r.tells(ctx, corev1.ResourceHealthStatusHealthy, "whole")
	})

	It("evicts the pods of a GPU that fell off the bus, where it is told to, and they come back elsewhere", func(ctx context.Context) {
		judge(ctx, on, map[string]any{"quietPeriod": "1s", "evict": true})
		other := newRoom(ctx)
		other.replicate(ctx, "server")
		pod := other.replica(ctx, "server", "")
		lost := other.seenBy(ctx, pod.Name)
		index := hardwareIndex(on, lost)
		Expect(fakegpu.Lose(on.GPUFolder(), index)).To(Succeed())
		marked(ctx, on, gpu.SignalXID, onGPUs(on, "79 NoExecute", index))
		next := other.replica(ctx, "server", string(pod.UID))
		Expect(other.seenBy(ctx, next.Name)).NotTo(Equal(lost))
		for name := range shaped() {
			Expect(container(r.running(ctx, name))).To(Equal(first[name]), "pod %s was disturbed", name)
		}
	}, atMost)

	DescribeTable("a signal that lasts reaches every shape that shows it", func(ctx context.Context, signal gpu.Signal, inject func(string, int) error, indices ...int) {
		Expect(show(inject, indices...)).To(Succeed())
		reaches(ctx, signal, "NoSchedule", true, indices...)
	},
		Entry("memory errors", gpu.SignalECC, func(folder string, i int) error { return fakegpu.ECC(folder, i, 0, 1) }, turned, served, whole),
		Entry("an NVLink that is down", gpu.SignalNVLink, func(folder string, i int) error { return fakegpu.LinkDown(folder, i, 2) }, turned, served, whole),
		// This entry is the last, since it affects all GPUs.
		Entry("a row of memory to remap", gpu.SignalRemapPending, func(folder string, i int) error {
			return fakegpu.Remap(folder, i, fakegpu.Remapping{Uncorrectable: 1, Pending: true})
		}, sliced, turned, served, whole),
	)

	It("remembers when the agent is killed, and is convinced by a reboot of the node", func(ctx context.Context) {
		gone := []gpu.Signal{gpu.SignalXID, gpu.SignalRemapPending, gpu.SignalECC, gpu.SignalNVLink}
		before := entire(ctx, on)
		crash(ctx, on)
		for range 3 { // it has looked again, and found nothing that proves anything
			Expect(fakegpu.Reset(on.GPUFolder())).To(Succeed())
			Consistently(ctx, func(ctx context.Context) map[string]string {
				return entire(ctx, on).Of(v1alpha1.DriverName, gpu.SignalECC)
			}).
				WithTimeout(2 * time.Second).Should(Equal(before.Of(v1alpha1.DriverName, gpu.SignalECC)))
		}
		name := wire.DeviceName(gpu.Device{GPU: physical(on, hardware(on).GPUs[whole].UUID).Name(), Use: gpu.Use{Shape: gpu.Whole}})
		old, has := before.Find(name, v1alpha1.DriverName, gpu.SignalECC)
		Expect(has).To(BeTrue())
		now, _ := entire(ctx, on).Find(name, v1alpha1.DriverName, gpu.SignalECC)
		Expect(now.TimeAdded).To(Equal(old.TimeAdded), "it is not a new fault")
		rebooted(ctx, on)
		for _, signal := range gone {
			marked(ctx, on, signal, nowhere)
		}
	}, atMost)
})

// replicate creates a Deployment of one pod with its own H100, claimed by a template.
func (r room) replicate(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := r.Client.ResourceV1().ResourceClaimTemplates(r.namespace).Create(ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{
			Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request("gpu", wholeClass, onH100)}},
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	pod := podOf(name, stay(), "gpu")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &name}
	labels := map[string]string{"app": name}
	_, err = r.Client.AppsV1().Deployments(r.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// replica waits until a pod of the Deployment runs whose UID differs from not.
func (r room) replica(ctx context.Context, name, not string) corev1.Pod {
	GinkgoHelper()
	var found corev1.Pod
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		pods, err := r.Client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		g.Expect(err).NotTo(HaveOccurred())
		found = corev1.Pod{}
		for _, pod := range pods.Items {
			if string(pod.UID) != not && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				found = pod
			}
		}
		g.Expect(found.Name).NotTo(BeEmpty(), "a pod of %s that runs", name)
	}).Should(Succeed())
	return found
}

// seenBy returns the UUID of the only GPU of a pod.
func (r room) seenBy(ctx context.Context, pod string) string {
	GinkgoHelper()
	seen := r.seen(ctx, pod)
	Expect(seen).To(HaveLen(1))
	return seen[0].UUID
}

// hardwareIndex returns the index of the GPU with the UUID.
func hardwareIndex(on *lab.Node, uuid string) int {
	GinkgoHelper()
	for _, g := range hardware(on).GPUs {
		if g.UUID == uuid {
			return int(g.Index)
		}
	}
	Fail("no GPU " + uuid + " on " + on.Name())
	return 0
}
