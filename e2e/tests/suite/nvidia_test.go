package suite

import (
	"context"
	"os"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
	"github.com/tessera-gpu/tessera/e2e/tests/specs"
)

// nvidiaExamples are unmodified manifests for NVIDIA's driver.
var nvidiaExamples = must(expect.Load(os.DirFS("../../../deployments/nvidia/examples")))

// These specs run in a cluster in which Tessera uses the name of NVIDIA's driver.
var _ = Describe("In the place of NVIDIA's driver", func() {
	It("every manifest written for it comes out as it says", func(ctx context.Context) {
		folder := specs.Folder("suite-nvidia")
		Expect(lab.Down(ctx, folder)).To(Succeed(), "what an earlier run left behind")
		DeferCleanup(lab.Down, folder)
		there, err := cluster.Up(ctx, cluster.Config{Folder: folder, Images: images, Components: []string{"nvidia"}, Progress: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		watcher, err := expect.NewWatcher(ctx, there.Client)
		Expect(err).NotTo(HaveOccurred())

		ctx, cancel := context.WithTimeout(ctx, 2*harness.Patience)
		defer cancel()
		complaints := make([][]string, len(nvidiaExamples))
		var group sync.WaitGroup
		for i, example := range nvidiaExamples {
			if example.File == "mps-per-device.yaml" {
				example = withMemoryLimit(example, "4Gi")
			}
			group.Go(func() {
				outcomes, err := watcher.Run(ctx, there, example)
				if err != nil {
					complaints[i] = []string{err.Error()}
				}
				for _, outcome := range outcomes {
					complaints[i] = append(complaints[i], expect.Compare(outcome, outcomes)...)
				}
			})
		}
		group.Wait()
		for i, example := range nvidiaExamples {
			Expect(complaints[i]).To(BeEmpty(), example.File)
		}
		slices, err := there.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, slice := range slices.Items {
			Expect(slice.Spec.Driver).To(Equal(v1alpha1.NVIDIADriverName))
		}
		Expect(len(nvidiaExamples)).To(BeNumerically(">=", 12))
	}, atMost)
})

// withMemoryLimit returns the example with a probe in its containers, which CUDA lets allocate so much memory on the first device: no public image prints that.
// Both devices have the limit, since positions are in the order of UUIDs, and which GPUs are allocated is not known.
func withMemoryLimit(example expect.Example, limit string) expect.Example {
	GinkgoHelper()
	probed := withProbe(example, "sh", "-c", "probe && exec probe --stay 3 share")
	for _, object := range probed.Objects {
		if object.GetKind() != "ResourceClaimTemplate" {
			continue
		}
		configs, _, err := unstructured.NestedSlice(object.Object, "spec", "spec", "devices", "config")
		Expect(err).NotTo(HaveOccurred())
		Expect(configs).To(HaveLen(1))
		Expect(unstructured.SetNestedStringMap(configs[0].(map[string]any), map[string]string{"0": limit, "1": limit},
			"opaque", "parameters", "sharing", "mpsConfig", "defaultPerDevicePinnedMemoryLimit")).To(Succeed())
		Expect(unstructured.SetNestedSlice(object.Object, configs, "spec", "spec", "devices", "config")).To(Succeed())
	}
	for i := range probed.Subjects {
		probed.Subjects[i].Expectation.Allocates = new(resource.MustParse(limit))
	}
	return probed
}
