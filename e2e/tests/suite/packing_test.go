package suite

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// first returns the UUID of the first GPU of node1.
func first() string {
	GinkgoHelper()
	return hardware(node("node1")).GPUs[0].UUID
}

// pending returns when the scheduler has reported that no node satisfies the pod.
func (r room) pending(ctx context.Context, name string) {
	GinkgoHelper()
	r.refused(ctx, name, "cannot allocate all claims")
	pod, err := r.pod(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	Expect(pod.Status.Phase).To(Equal(corev1.PodPending))
	Expect(pod.Spec.NodeName).To(BeEmpty())
}

var _ = Describe("One H100", func() {
	It("holds seven 1g and keeps the eighth pending with a reason", func(ctx context.Context) {
		r := newRoom(ctx)
		slice := request("slice", migClass, onParent(first()), profile(oneSlice))
		for i := range 7 {
			r.hold(ctx, fmt.Sprintf("slice-%d", i), slice)
		}
		r.claim(ctx, "eighth", slice)
		r.create(ctx, podOf("eighth", stay(), "eighth"))
		r.pending(ctx, "eighth")

		r.release(ctx, "slice-3")
		r.running(ctx, "eighth")
	})

	It("places a 3g where a fragmented release left room", func(ctx context.Context) {
		r := newRoom(ctx)
		slice := request("slice", migClass, onParent(first()), profile(oneSlice))
		for i := range 7 {
			r.hold(ctx, fmt.Sprintf("slice-%d", i), slice)
		}
		// Memory slices 4 to 6 become free, 7 is free already: a 3g fits at 4 only.
		for i := range 7 {
			name := fmt.Sprintf("slice-%d", i)
			if start := r.start(ctx, name); start >= 4 {
				r.release(ctx, name)
			}
		}
		r.hold(ctx, "big", request("slice", migClass, onParent(first()), profile(threeSlices)))
		Expect(r.start(ctx, "big")).To(BeEquivalentTo(4))
		Expect(count(ctx, node("node1")).Instances).To(ContainElement("0/" + threeSlices + "@4"))
	})

	It("is never whole and MIG at once, whoever comes first", func(ctx context.Context) {
		whole, slice := request("gpu", wholeClass, onGPU(first())), request("slice", migClass, onParent(first()), profile(oneSlice))
		for _, order := range [][2]resourceapi.DeviceRequest{{whole, slice}, {slice, whole}} {
			r := newRoom(ctx)
			r.hold(ctx, "first", order[0])
			r.claim(ctx, "second", order[1])
			r.create(ctx, podOf("second", stay(), "second"))
			r.pending(ctx, "second")
			r.release(ctx, "first")
			r.running(ctx, "second")
			r.release(ctx, "second")
		}
	})

	It("carries fourteen slices on two GPUs for fourteen pods that come at once", func(ctx context.Context) {
		r := newRoom(ctx)
		on := hardware(node("node1")).GPUs
		for i := range 14 {
			name := fmt.Sprintf("slice-%d", i)
			r.claim(ctx, name, request("slice", migClass, onParent(on[i%2].UUID), profile(oneSlice)))
			r.create(ctx, podOf(name, stay(), name))
		}
		seen := map[string]string{}
		for i := range 14 {
			name := fmt.Sprintf("slice-%d", i)
			r.running(ctx, name)
			devices := r.seen(ctx, name)
			Expect(devices).To(HaveLen(1))
			Expect(seen).NotTo(HaveKey(devices[0].UUID), "two pods see one MIG device")
			seen[devices[0].UUID] = name
		}
		Expect(count(ctx, node("node1")).Instances).To(HaveLen(14))
	})
})

// start returns the first memory slice that a claim's MIG device consumes, as published.
func (r room) start(ctx context.Context, claim string) int64 {
	GinkgoHelper()
	consumed := r.allocated(ctx, claim)[0].ConsumesCounters
	Expect(consumed).To(HaveLen(1))
	for slice := range int64(gpu.MaxSlices) {
		if _, ok := consumed[0].Counters[slot(int(slice))]; ok {
			return slice
		}
	}
	Fail("claim " + claim + ": the device consumes no memory slice")
	return 0
}
