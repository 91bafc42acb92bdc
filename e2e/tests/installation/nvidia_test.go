package installation

import (
	"context"
	"os"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// The chart with the name of NVIDIA's driver. The suite runs all manifests that were written for that driver, with the kustomize component.
var _ = Describe("The chart with the name of NVIDIA's driver", Ordered, func() {
	start("installation-nvidia", cluster.BareNodes()[:1])

	It("makes a bare node serve claims that were written for it", func(ctx context.Context) {
		Expect(c.InstallChart(ctx, cluster.Values{
			"images":        cluster.Values{"driver": cluster.Values{"version": cluster.NewDriver}},
			"clusterPolicy": cluster.Values{"nodeAgent": cluster.Values{"config": cluster.Values{"driverName": v1alpha1.NVIDIADriverName}}},
		})).To(Succeed())
		allReady(ctx, cluster.NewDriver, hopper)
		examples, err := expect.Load(os.DirFS("../../../deployments/nvidia/examples"))
		Expect(err).NotTo(HaveOccurred())
		watcher, err := expect.NewWatcher(ctx, c.Client)
		Expect(err).NotTo(HaveOccurred())
		for _, file := range []string{"single-gpu.yaml", "extended-resource.yaml", "mig-by-profile.yaml", "refused-limit.yaml"} {
			By(file)
			i := slices.IndexFunc(examples, func(e expect.Example) bool { return e.File == file })
			Expect(i).To(BeNumerically(">=", 0))
			limited, cancel := context.WithTimeout(ctx, harness.Patience)
			outcomes, err := watcher.Run(limited, c, examples[i])
			cancel()
			Expect(err).NotTo(HaveOccurred())
			for _, outcome := range outcomes {
				Expect(expect.Compare(outcome, outcomes)).To(BeEmpty(), "%s", outcome.Subject)
			}
		}
	}, limit)
})
