package suite

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// driver is the driver name of the product in the lab.
const driver = "gpu.tessera.dev"

// configured returns a claim with opaque parameters.
func configured(name, forDriver, parameters string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	claim := claimOf(name, requests...)
	claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: forDriver, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
		}},
	}}
	return claim
}

var _ = Describe("Parameters", func() {
	slice := request("slice", migClass, onH100, profile(oneSlice))

	It("for a named request of another type are refused", func(ctx context.Context) {
		r := newRoom(ctx)
		claim := configured("bad", driver, `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig"}`, slice)
		claim.Spec.Devices.Config[0].Requests = []string{"slice"}
		Expect(r.make(ctx, claim)).To(Succeed())
		r.create(ctx, podOf("bad", stay(), "bad"))
		r.refused(ctx, "bad", "is not for a device of type mig")
		r.hold(ctx, "good", slice)
		r.release(ctx, "good")
		r.release(ctx, "bad")
		nothingLeft(ctx)
	})

	It("of another driver are none of our business", func(ctx context.Context) {
		r := newRoom(ctx)
		Expect(r.make(ctx, configured("other", "fpga.example.com", `{"anything":1}`, slice))).To(Succeed())
		r.create(ctx, podOf("other", stay(), "other"))
		r.running(ctx, "other")
	})

	DescribeTable("that make no sense are refused when the claim is made", func(ctx context.Context, parameters string, says ...string) {
		r := newRoom(ctx)
		err := r.make(ctx, configured("bad", driver, parameters, slice))
		for _, text := range says {
			Expect(err).To(MatchError(ContainSubstring(text)))
		}
	},
		Entry("an unknown field", `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"MIGConfig","colour":"green"}`, "unknown field", "the fields are mps"),
		Entry("an unknown kind", `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"TPUConfig"}`, "kind", "GPUConfig", "MIGConfig"),
		Entry("no kind at all", `{}`, "kind"),
		Entry("null", `null`, "parameters"),
		Entry("more than 10 KiB", fmt.Sprintf(`{"long":%q}`, strings.Repeat("x", 10<<10)), "parameters"),
	)
})

var _ = Describe("Two allocations of one device, written by hand", func() {
	It("are not both served: the second is told who holds it", func(ctx context.Context) {
		r := newRoom(ctx)
		withoutScheduler(ctx)
		on := node("node1")
		device := wholeDevice(ctx, on)
		for _, name := range []string{"holder", "intruder"} {
			r.bind(ctx, on, name, device)
			if name == "holder" {
				r.running(ctx, "holder")
			}
		}
		r.refused(ctx, "intruder", r.namespace+"/holder")
		r.release(ctx, "holder")
		r.running(ctx, "intruder")
	})
})

// wholeDevice returns a published whole GPU of the node as an allocation result.
func wholeDevice(ctx context.Context, on *lab.Node) resourceapi.DeviceRequestAllocationResult {
	GinkgoHelper()
	for _, slice := range pool(ctx, on) {
		for _, device := range slice.Spec.Devices {
			if (published{device}).attribute("type") == "gpu" {
				return resourceapi.DeviceRequestAllocationResult{
					Request: "gpu", Driver: driver, Pool: slice.Spec.Pool.Name, Device: device.Name,
				}
			}
		}
	}
	Fail("no whole GPU on " + on.Name())
	return resourceapi.DeviceRequestAllocationResult{}
}

// bind simulates the scheduler, with its identity: it allocates the device to a new claim and binds a pod of the same
// name to the node.
func (r room) bind(ctx context.Context, on *lab.Node, name string, device resourceapi.DeviceRequestAllocationResult) {
	GinkgoHelper()
	claims := r.Client.ResourceV1().ResourceClaims(r.namespace)
	claim := claimOf(name, request("gpu", wholeClass))
	claim.Finalizers = []string{resourceapi.Finalizer}
	Expect(r.make(ctx, claim)).To(Succeed())
	pod := podOf(name, stay(), name)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "suite/by-hand"}}
	pod, err := r.Client.CoreV1().Pods(r.namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())

	claim, err = claims.Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	claim.Status = resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{
			Devices:      resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{device}},
			NodeSelector: onlyOn(on),
		},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}},
	}
	_, err = clientAs(allocator()).ResourceV1().ResourceClaims(r.namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())

	pod.Spec.SchedulingGates = nil
	_, err = r.Client.CoreV1().Pods(r.namespace).Update(ctx, pod, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(r.Client.CoreV1().Pods(r.namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: on.Name()},
	}, metav1.CreateOptions{})).To(Succeed())
}

func onlyOn(on *lab.Node) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{on.Name()}}},
	}}}
}
