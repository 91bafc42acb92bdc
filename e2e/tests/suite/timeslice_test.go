package suite

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/kubelet-plugin/status"
)

// timed returns a claim of a time share that requests an interval.
func timed(name, uuid, interval string) *resourceapi.ResourceClaim {
	return configured(name, driver, `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig","timeSlicing":{"interval":"`+interval+`"}}`,
		share(timeShareClass, uuid, "10Gi", ""))
}

var _ = Describe("The time slice of a GPU", func() {
	It("is what the first claim wished, others are told, and the last one takes it back", func(ctx context.Context) {
		r, on := newRoom(ctx), node("node1")
		uuid := hardware(on).GPUs[0].UUID
		class := func() int { return hardware(on).GPUs[0].TimeSlice }
		hold := func(name, interval string) {
			GinkgoHelper()
			Expect(r.make(ctx, timed(name, uuid, interval))).To(Succeed())
			r.create(ctx, podOf(name, stay(), name))
			r.running(ctx, name)
		}
		hold("first", "Long")
		Expect(class()).To(Equal(3))
		hold("second", "Short")
		Expect(class()).To(Equal(3))
		r.refused(ctx, "second", "TimeSliceNotApplied")
		r.applied(ctx, "second", metav1.ConditionFalse)
		r.applied(ctx, "first", metav1.ConditionTrue)

		r.release(ctx, "first")
		Expect(class()).To(Equal(3), "the second one was told that it has this")
		crash(ctx, on)
		r.release(ctx, "second")
		nothingLeft(ctx)
		hold("third", "Short")
		Expect(class()).To(Equal(1))
		r.release(ctx, "third")
		nothingLeft(ctx)
	})
})

// applied waits until the status of the claim's only device reports whether the requested time slice is set on the GPU.
func (r room) applied(ctx context.Context, claim string, whether metav1.ConditionStatus) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		object, err := r.Client.ResourceV1().ResourceClaims(r.namespace).Get(ctx, claim, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object.Status.Devices).To(HaveLen(1))
		says := meta.FindStatusCondition(object.Status.Devices[0].Conditions, status.TimeSliceApplied)
		g.Expect(says).To(HaveValue(HaveField("Status", whether)))
	}).Should(Succeed())
}
