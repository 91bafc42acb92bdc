package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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
	image, err := bundle.Scheduler(bundle.Programs{Scheduler: programPath(ctx, tesseraProgram)})
	Expect(err).NotTo(HaveOccurred())
	Expect(oci.WriteArchive(archive, image)).To(Succeed())
	Expect(c.LoadImage(ctx, archive)).To(Succeed())

	withoutScheduler(ctx)
	_, kubeconfig := r.secondScheduler(ctx)
	startScheduler(ctx, stockProgram, stockConfig(corev1.DefaultSchedulerName, kubeconfig))

	there, err := cluster.Manifests(c.Kubernetes())
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

// leaders returns the values of leader_election_master_status of the scheduler's pods, read with the account of deployments/monitoring.
func leaders(ctx context.Context) ([]string, error) {
	objects, err := cluster.ReadManifest("monitoring", "account.yaml")
	if err != nil {
		return nil, err
	}
	DeferCleanup(func(ctx context.Context) error { return c.Delete(ctx, objects...) })
	if err := c.Apply(ctx, objects...); err != nil {
		return nil, err
	}
	account, err := c.Client.CoreV1().Secrets(cluster.Namespace).Get(ctx, "tessera-metrics", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + cluster.SchedulerName})
	if err != nil {
		return nil, err
	}
	var values []string
	for _, pod := range pods.Items {
		curl := []string{"curl", "-sSk", "--max-time", "5", "https://" + pod.Status.PodIP + ":10259/metrics"}
		if code, err := c.Nodes()[0].Exec(ctx, append(curl, "-o", "/dev/null", "-w", "%{http_code}")...); err != nil || string(code) != "403" {
			return nil, fmt.Errorf("without a token: code %s, want 403: %w", code, err)
		}
		text, err := c.Nodes()[0].Exec(ctx, append(curl, "--fail", "-H", "Authorization: Bearer "+string(account.Data["token"]))...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if value, is := strings.CutPrefix(line, `leader_election_master_status{name="kube-scheduler"} `); is {
				values = append(values, strings.TrimSpace(value))
			}
		}
	}
	return values, nil
}

var _ = Describe("tessera-scheduler in addition to kube-scheduler", func() {
	It("gets the pods with devices of every namespace but those that opt out, and only its pods get devices", func(ctx context.Context) {
		r, out := newRoom(ctx), newRoom(ctx)
		runAdditional(ctx, r)
		Eventually(ctx, leaders).Should(ConsistOf("0", "1"), "the series of the alert, in the metrics of the two pods")
		slice := request("slice", migClass, onH100, profile(oneSlice))
		out.label(ctx, "gpu.tessera.dev/scheduler", "none")
		r.claim(ctx, "by-claim", slice)
		byClaim, byTemplate, byResource := podOf("by-claim", stay(), "by-claim"), r.templated(ctx, "by-template", slice), extended("by-resource", 1)
		Eventually(ctx, func(ctx context.Context) (string, error) { return r.scheduler(ctx, byClaim) }).
			WithPolling(100 * time.Millisecond).Should(Equal(cluster.SchedulerName))

		out.claim(ctx, "left", slice)
		out.create(ctx, podOf("left", stay(), "left"))
		out.pending(ctx, "left")
		out.claim(ctx, "named", slice)
		named := podOf("named", stay(), "named")
		named.Spec.SchedulerName = cluster.SchedulerName
		out.create(ctx, named)
		out.running(ctx, "named")
		out.pending(ctx, "left")
		Expect(out.scheduler(ctx, extended("opted-out", 1))).To(Equal(corev1.DefaultSchedulerName))

		for _, pod := range []*corev1.Pod{byClaim, byTemplate, byResource} {
			r.create(ctx, pod)
		}
		for _, pod := range []*corev1.Pod{byClaim, byTemplate, byResource} {
			r.running(ctx, pod.Name)
		}
	}, atMost)
})
