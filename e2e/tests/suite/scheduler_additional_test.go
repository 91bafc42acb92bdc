package suite

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// runAdditional installs the scheduler's pods in addition to a stock scheduler, as shipped, until the spec ends. It
// returns when they are ready.
func runAdditional(ctx context.Context, r room) {
	GinkgoHelper()
	archive := filepath.Join(GinkgoT().TempDir(), "scheduler.tar")
	image := bundle.Scheduler(bundle.Programs{Scheduler: programPath(ctx, tesseraProgram)})
	Expect(oci.WriteArchive(archive, image)).To(Succeed())
	Expect(c.LoadImage(ctx, archive)).To(Succeed())

	withoutScheduler(ctx)
	_, kubeconfig := r.secondScheduler(ctx)
	startScheduler(ctx, stockProgram, stockConfig(corev1.DefaultSchedulerName, kubeconfig))

	there, err := cluster.Manifests()
	Expect(err).NotTo(HaveOccurred())
	objects, err := cluster.Kustomized(ctx, "scheduler/additional")
	Expect(err).NotTo(HaveOccurred())
	added := slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return slices.ContainsFunc(there, func(other *unstructured.Unstructured) bool {
			return object.GetKind() == other.GetKind() && object.GetName() == other.GetName() && object.GetNamespace() == other.GetNamespace()
		})
	})
	DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, added...)).To(Succeed()) })
	Expect(c.Apply(ctx, added...)).To(Succeed())
	Eventually(ctx, func(ctx context.Context) (int32, error) {
		deployment, err := c.Client.AppsV1().Deployments(cluster.Namespace).Get(ctx, cluster.SchedulerName, metav1.GetOptions{})
		return deployment.Status.ReadyReplicas, err
	}).Should(BeEquivalentTo(2))
}

// label labels the room's namespace.
func (r room) label(ctx context.Context, key, value string) {
	GinkgoHelper()
	patch := []byte(`{"metadata":{"labels":{"` + key + `":"` + value + `"}}}`)
	_, err := r.Client.CoreV1().Namespaces().Patch(ctx, r.namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// scheduler returns the scheduler name that admission assigns to the pod in the room, using a dry run.
func (r room) scheduler(ctx context.Context, pod *corev1.Pod) (string, error) {
	made, err := r.Client.CoreV1().Pods(r.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return "", err
	}
	return made.Spec.SchedulerName, nil
}

var _ = Describe("tessera-scheduler in addition to kube-scheduler", func() {
	It("has the devices for itself, and pods come to it by name or by their namespace's label", func(ctx context.Context) {
		own, opted := newRoom(ctx), newRoom(ctx)
		runAdditional(ctx, own)
		slice := request("slice", migClass, onH100, profile(oneSlice))

		own.claim(ctx, "left", slice)
		own.create(ctx, podOf("left", stay(), "left"))
		own.pending(ctx, "left")
		own.claim(ctx, "named", slice)
		pod := podOf("named", stay(), "named")
		pod.Spec.SchedulerName = cluster.SchedulerName
		own.create(ctx, pod)
		own.running(ctx, "named")
		own.pending(ctx, "left")

		opted.label(ctx, "gpu.tessera.dev/scheduler", cluster.SchedulerName)
		opted.claim(ctx, "by-claim", slice)
		byClaim, byTemplate, byResource := podOf("by-claim", stay(), "by-claim"), opted.templated(ctx, "by-template", slice), extended("by-resource", 1)
		Eventually(ctx, func(ctx context.Context) (string, error) { return opted.scheduler(ctx, byClaim) }).
			WithPolling(100 * time.Millisecond).Should(Equal(cluster.SchedulerName))
		initial := extended("initial", 1)
		initial.Spec.InitContainers = initial.Spec.Containers
		initial.Spec.Containers = podOf("main", stay()).Spec.Containers
		initial.Spec.InitContainers[0].Name = "first"
		other := podOf("other", stay(), "by-claim")
		other.Spec.SchedulerName = "another"
		for want, pods := range map[string][]*corev1.Pod{
			cluster.SchedulerName:       {byClaim, byTemplate, byResource, initial},
			corev1.DefaultSchedulerName: {podOf("plain", stay())},
			"another":                   {other},
		} {
			for _, pod := range pods {
				Expect(opted.scheduler(ctx, pod)).To(Equal(want), pod.Name)
			}
		}
		for _, pod := range []*corev1.Pod{byClaim, byTemplate, byResource} {
			opted.create(ctx, pod)
		}
		for _, pod := range []*corev1.Pod{byClaim, byTemplate, byResource} {
			opted.running(ctx, pod.Name)
		}
	}, atMost)
})
