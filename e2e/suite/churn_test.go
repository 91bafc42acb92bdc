package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tessera-gpu/tessera/e2e/expect"
)

// wishes are what the pods of the churn ask for, over both nodes; small ones more often.
var wishes = []resourceapi.DeviceRequest{
	request("d", migClass, onH100, profile(oneSlice)), request("d", migClass, onH100, profile(oneSlice)),
	request("d", migClass, onH100, profile(twoSlices)), request("d", migClass, onH100, profile(threeSlices)),
	request("d", wholeClass, onH100), request("d", wholeClass, onL40S), request("d", wholeClass, onA30),
	request("d", migClass, onA30, profile("1g.6gb")), request("d", migClass, onA30, profile("2g.12gb")),
}

// resources is what an agent uses that a leak would add to.
type resources struct{ Files, Goroutines float64 }

func usage(ctx context.Context) map[string]resources {
	GinkgoHelper()
	use := map[string]resources{}
	for _, n := range c.Nodes() {
		use[n.Name()] = resources{metric(ctx, n, "process_open_fds"), metric(ctx, n, "go_goroutines")}
	}
	return use
}

var _ = Describe("Two hundred pods, sixteen at a time", func() {
	It("each see exactly their device and leave nothing behind", func(ctx context.Context) {
		r := newRoom(ctx)
		before := usage(ctx)
		// The seed is ginkgo's, so that a run can be repeated.
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1)) //nolint:gosec // a repeatable choice
		var done atomic.Int32
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(16)
		for i := range 200 {
			wish := wishes[random.IntN(len(wishes))]
			group.Go(func() error {
				defer GinkgoRecover()
				if err := r.cycle(within, fmt.Sprintf("pod-%d", i), wish); err != nil {
					return fmt.Errorf("pod-%d: %w", i, err)
				}
				if n := done.Add(1); n%50 == 0 {
					GinkgoWriter.Printf("%d of 200 pods came and went\n", n)
				}
				return nil
			})
		}
		Expect(group.Wait()).To(Succeed())

		nothingLeft(ctx)
		for _, n := range c.Nodes() {
			Eventually(ctx, func(ctx context.Context) resources { return usage(ctx)[n.Name()] }).Should(SatisfyAll(
				HaveField("Files", BeNumerically("<=", before[n.Name()].Files)),
				HaveField("Goroutines", BeNumerically("<=", before[n.Name()].Goroutines)),
			), "what the agent on %s uses", n.Name())
		}
	}, NodeTimeout(10*time.Minute))
})

// cycle makes a claim and a pod, waits until the pod has told what it sees, and takes both away.
func (r room) cycle(ctx context.Context, name string, wish resourceapi.DeviceRequest) error {
	if err := r.tryClaim(ctx, name, wish); err != nil {
		return err
	}
	if err := r.tryCreate(ctx, podOf(name, stay(), name)); err != nil {
		return err
	}
	var seen []expect.Seen
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		pod, err := r.pod(ctx, name)
		if err != nil || pod.Status.Phase == corev1.PodPending {
			return false, err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return false, fmt.Errorf("is %s: %s", pod.Status.Phase, r.why(ctx, name))
		}
		text, err := r.log(ctx, name)
		if err != nil {
			return false, err
		}
		report, ok := expect.ParseReport(text)
		seen = report.Devices()
		return ok, nil
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, r.why(ctx, name))
	}
	if len(seen) != 1 {
		return fmt.Errorf("sees %v, was given one device", seen)
	}
	return r.letGo(ctx, name)
}
