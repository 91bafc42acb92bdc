package installation

import (
	"context"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// The chart with the name of NVIDIA's driver. The suite runs all manifests that were written for that driver, with the kustomize component.
var _ = Describe("The chart with the name of NVIDIA's driver", Ordered, func() {
	start("installation-nvidia", cluster.BareNodes()[:1])

	install := func(ctx context.Context, config cluster.Values) {
		config["driverName"] = v1alpha1.NVIDIADriverName
		Expect(c.InstallChart(ctx, cluster.Values{
			"images":        cluster.Values{"driver": cluster.Values{"version": cluster.NewDriver}},
			"clusterPolicy": cluster.Values{"nodeAgent": cluster.Values{"config": config}},
		})).To(Succeed())
		allReady(ctx, cluster.NewDriver, hopper)
	}

	It("makes a bare node serve claims that were written for it", func(ctx context.Context) {
		install(ctx, cluster.Values{})
		examples, err := expect.Load(os.DirFS("../../../deployments/nvidia/examples"))
		Expect(err).NotTo(HaveOccurred())
		for _, file := range []string{"single-gpu.yaml", "extended-resource.yaml", "mig-by-profile.yaml", "refused-limit.yaml"} {
			i := slices.IndexFunc(examples, func(e expect.Example) bool { return e.File == file })
			Expect(i).To(BeNumerically(">=", 0))
			comesOut(ctx, examples[i])
		}
	}, limit)

	// The cases of NVIDIA's own tests of the option (dra-driver-nvidia-gpu, tests/bats/test_gpu_consumable_shares.bats), without depending on which GPU a
	// scheduler selects: all shares of the node are allocated.
	It("shares GPUs between claims as that driver's option consumable-shares does", func(ctx context.Context) {
		install(ctx, cluster.Values{"consumableShares": "2"})
		Eventually(ctx, func(ctx context.Context) ([]string, error) { return typesOf(ctx, gpu.TimeShare) }).Should(HaveEach("gpu"))
		examples, err := expect.Load(os.DirFS("testdata/consumable"))
		Expect(err).NotTo(HaveOccurred())
		Expect(examples).To(HaveLen(3))
		for _, example := range examples { // in the order of their names
			comesOut(ctx, example)
		}
	}, limit)
})

// comesOut runs the example and checks its outcome.
func comesOut(ctx context.Context, e expect.Example) {
	GinkgoHelper()
	By(e.File)
	watcher, err := expect.NewWatcher(ctx, c.Client)
	Expect(err).NotTo(HaveOccurred())
	limited, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	outcomes, err := watcher.Run(limited, c, e)
	Expect(err).NotTo(HaveOccurred())
	for _, outcome := range outcomes {
		Expect(expect.Compare(outcome, outcomes)).To(BeEmpty(), "%s", outcome.Subject)
	}
}

// typesOf returns the types of all published devices of the shape.
func typesOf(ctx context.Context, shape gpu.Shape) ([]string, error) {
	slices, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + v1alpha1.NVIDIADriverName})
	if err != nil {
		return nil, err
	}
	var types []string
	for _, slice := range slices.Items {
		for _, d := range slice.Spec.Devices {
			if strings.HasSuffix(d.Name, "-"+shape.String()) {
				types = append(types, *d.Attributes[wire.Type].StringValue)
			}
		}
	}
	return types, nil
}
