package suite

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/tests/predict"
)

// foresee reads the published cluster and checks that its allocations do not contradict each other.
func foresee(ctx context.Context) *predict.Foresight {
	GinkgoHelper()
	for _, node := range c.Nodes() {
		pool(ctx, node)
	}
	f, err := predict.Read(ctx, c.Client, driver)
	Expect(err).NotTo(HaveOccurred())
	for _, node := range c.Nodes() {
		Expect(f.Contradiction(node.Name())).To(Succeed(), node.Name())
	}
	return f
}

// lands lets the scheduler place a pod with the claim, and checks that it is where fit predicts: on one of the best
// nodes, with those devices, as seen inside the container.
func (r room) lands(ctx context.Context, claim *resourceapi.ResourceClaim) {
	GinkgoHelper()
	Expect(r.make(ctx, claim)).To(Succeed())
	name := claim.Name
	claim, err := r.Client.ResourceV1().ResourceClaims(r.namespace).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	before := foresee(ctx)
	r.create(ctx, podOf(name, stay(), name))
	on := r.running(ctx, name).Spec.NodeName

	said, err := before.On(on, claim) //nolint:contextcheck // selectors are evaluated in memory
	Expect(err).NotTo(HaveOccurred())
	Expect(said.Devices).NotTo(BeEmpty(), "%s runs on %s: %s", name, on, said.Text)
	for _, other := range c.Nodes() {
		there, err := before.On(other.Name(), claim) //nolint:contextcheck // as above
		if err == nil && len(there.Devices) > 0 {
			Expect(there.Score).To(BeNumerically("<=", said.Score), "%s runs on %s", name, on)
		}
	}
	var got []string
	for _, result := range r.results(ctx, name) {
		got = append(got, result.Device)
	}
	Expect(got).To(Equal(said.Devices), "%s: %s", name, said.Text)

	var inside []string // GPUs by UUID, MIG devices by the UUID of their GPU and their profile
	for _, device := range r.seen(ctx, name) {
		inside = append(inside, place(device.UUID, device.Parent, device.Profile))
	}
	var allocated []string
	for _, device := range r.allocated(ctx, name) {
		allocated = append(allocated, place(device.attribute("uuid"), device.attribute("parentUUID"), device.attribute("profile")))
	}
	Expect(inside).To(ConsistOf(allocated), "%s sees from inside what it was given", name)
}

func place(uuid, parent, profile string) string {
	if parent != "" {
		return parent + " " + profile
	}
	return uuid
}

// fragments holds MIG devices on both nodes so that their GPUs are in use to different degrees.
func (r room) fragments(ctx context.Context) {
	GinkgoHelper()
	gpus := hardware(node("node1")).GPUs
	small, large := profile(oneSlice), profile(threeSlices)
	for i, wish := range []resourceapi.DeviceRequest{
		request("slice", migClass, onParent(gpus[2].UUID), large),
		request("slice", migClass, onParent(gpus[5].UUID), small),
		request("slice", migClass, onParent(gpus[5].UUID), profile(twoSlices)),
		request("gpu", wholeClass, onGPU(gpus[6].UUID)),
		request("slice", migClass, onA30, profile("1g.6gb")),
	} {
		r.claim(ctx, named("before", i), wish)
		r.create(ctx, podOf(named("before", i), stay(), named("before", i)))
	}
	for i := range 5 {
		r.running(ctx, named("before", i))
	}
}

var _ = Describe("tessera-scheduler", func() {
	It("places pods where fit says, device for device", func(ctx context.Context) {
		r := newRoom(ctx)
		r.fragments(ctx)
		two := request("gpus", wholeClass)
		two.Exactly.Count, two.Exactly.AllocationMode = 2, resourceapi.DeviceAllocationModeExactCount
		for i, wish := range []resourceapi.DeviceRequest{
			request("slice", migClass, onH100, profile(oneSlice)),
			request("slice", migClass, onH100, profile(threeSlices)),
			request("slice", migClass), // the smallest suffices, on any GPU
			two,
			request("gpu", wholeClass, onH100),
			request("slice", migClass, onH100, profile(twoSlices)),
		} {
			r.lands(ctx, claimOf(named("pod", i), wish))
		}
	})

	It("fills a GPU that is broken into before it breaks an empty one, and whole GPUs are left", func(ctx context.Context) {
		r := newRoom(ctx)
		gpus := hardware(node("node1")).GPUs
		broken := gpus[5].UUID
		r.hold(ctx, "first", request("slice", migClass, onParent(broken), profile(oneSlice)))
		for i := range 4 {
			r.claim(ctx, named("slice", i), request("slice", migClass, onH100, profile(oneSlice)))
			r.create(ctx, podOf(named("slice", i), stay(), named("slice", i)))
		}
		for i := range 4 {
			r.running(ctx, named("slice", i))
			Expect(r.seen(ctx, named("slice", i))[0].Parent).To(Equal(broken))
		}
		rest := request("gpus", wholeClass, onH100)
		rest.Exactly.Count, rest.Exactly.AllocationMode = int64(len(gpus)-1), resourceapi.DeviceAllocationModeExactCount
		r.hold(ctx, "rest", rest)
		Expect(r.seen(ctx, "rest")).To(HaveLen(len(gpus) - 1))
	})

	It("chooses two GPUs with NVLink between them over two without", func(ctx context.Context) {
		r := newRoom(ctx)
		gpus := hardware(node("node2")).GPUs
		two := request("gpus", wholeClass, `!(`+onH100+`)`)
		two.Exactly.Count, two.Exactly.AllocationMode = 2, resourceapi.DeviceAllocationModeExactCount
		r.hold(ctx, "pair", two)
		var got []string
		for _, device := range r.seen(ctx, "pair") {
			got = append(got, device.UUID)
		}
		slices.Sort(got)
		linked := []string{gpus[2].UUID, gpus[3].UUID} // the A30 without MIG mode, which have an NVLink bridge
		slices.Sort(linked)
		Expect(got).To(Equal(linked))
	})
})
