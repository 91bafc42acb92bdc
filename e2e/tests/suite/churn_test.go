package suite

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// wishes are the requests of the pods of the churn, over both nodes; small ones are more frequent.
var wishes = []resourceapi.DeviceRequest{
	request("d", migClass, onH100, profile(oneSlice)), request("d", migClass, onH100, profile(oneSlice)),
	request("d", migClass, onH100, profile(twoSlices)), request("d", migClass, onH100, profile(threeSlices)),
	request("d", wholeClass, onH100), request("d", wholeClass, onL40S), request("d", wholeClass, onA30),
	request("d", migClass, onA30, profile("1g.6gb")), request("d", migClass, onA30, profile("2g.12gb")),
}

// resources are the resources of an agent that a leak would increase.
type resources struct{ Files, Goroutines float64 }

func usage(ctx context.Context, on *lab.Node) resources {
	GinkgoHelper()
	return resources{metric(ctx, on, "process_open_fds"), metric(ctx, on, "go_goroutines")}
}

// most returns the maximum of several measurements of an agent, which includes transient use.
func most(ctx context.Context, on *lab.Node) (use resources) {
	GinkgoHelper()
	for range 20 {
		now := usage(ctx, on)
		use = resources{max(use.Files, now.Files), max(use.Goroutines, now.Goroutines)}
	}
	return use
}

var _ = Describe("Pods that come and go, sixteen at a time,", func() {
	each := func(pods int) func(context.Context) {
		return func(ctx context.Context) {
			// Restarted agents have all their watches, also those that an earlier spec interrupted and that are retried
			// only after a minute. Resources that are kept from the first pods on are not a leak.
			for _, n := range c.Nodes() {
				crash(ctx, n)
			}
			r := newRoom(ctx)
			r.churn(ctx, "first", 16)
			before := map[string]resources{}
			for _, n := range c.Nodes() {
				before[n.Name()] = most(ctx, n)
			}

			r.churn(ctx, "pod", pods)
			GinkgoWriter.Printf("the agents used %v\n", before)
			for _, n := range c.Nodes() {
				Eventually(ctx, func(ctx context.Context) resources { return usage(ctx, n) }).Should(SatisfyAll(
					HaveField("Files", BeNumerically("<=", before[n.Name()].Files)),
					HaveField("Goroutines", BeNumerically("<=", before[n.Name()].Goroutines)),
				), "what the agent on %s uses", n.Name())
			}
		}
	}
	It("each see exactly their device and leave nothing behind", each(64), atMost)
	It("are two hundred, and leave nothing behind", Label("long"), each(200), atMost)
})

// churn creates and deletes count pods, each with one device, which it must see.
func (r room) churn(ctx context.Context, name string, pods int) {
	GinkgoHelper()
	// The seed is ginkgo's, so that a run can be repeated.
	random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1)) //nolint:gosec // a repeatable choice
	var gone atomic.Int32
	var group errgroup.Group
	group.SetLimit(16)
	for i := range pods {
		wish := wishes[random.IntN(len(wishes))]
		group.Go(func() error {
			defer GinkgoRecover()
			r.hold(ctx, named(name, i), wish)
			Expect(r.seen(ctx, named(name, i))).To(HaveLen(1), "pod %s was given one device", named(name, i))
			r.release(ctx, named(name, i))
			if n := gone.Add(1); n%50 == 0 {
				GinkgoWriter.Printf("%d of %d pods came and went\n", n, pods)
			}
			return nil
		})
	}
	Expect(group.Wait()).To(Succeed())
	nothingLeft(ctx)
}
