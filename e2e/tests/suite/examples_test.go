package suite

import (
	"context"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// examples are the manifests of deployments/examples with their expectations.
var examples = must(expect.Load(os.DirFS("../../../deployments/examples")))

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// exampleOf returns the example in the file.
func exampleOf(file string) expect.Example {
	GinkgoHelper()
	i := slices.IndexFunc(examples, func(e expect.Example) bool { return e.File == file })
	Expect(i).To(BeNumerically(">=", 0), "no example %s", file)
	return examples[i]
}

// runExample runs the example until the end of the spec, and returns its outcomes.
func runExample(ctx context.Context, watcher *expect.Watcher, example expect.Example) []expect.Outcome {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) {
		Expect(c.Delete(ctx, example.Objects...)).To(Succeed())
		nothingLeft(ctx)
		Eventually(ctx, settings).Should(BeEmpty(), "what a claim has set on a GPU goes with it")
	})
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	outcomes, err := watcher.Run(ctx, c, example)
	Expect(err).NotTo(HaveOccurred())
	for _, outcome := range outcomes {
		Expect(expect.Compare(outcome, outcomes)).To(BeEmpty(), "%s", outcome.Subject)
	}
	return outcomes
}

// setting is the state of a GPU that claims change while they hold it.
type setting struct {
	TimeSlice   int
	ComputeMode fakegpu.ComputeMode
}

// settings returns the settings of all GPUs that differ from the driver's defaults, by UUID.
func settings() map[string]setting {
	GinkgoHelper()
	set := map[string]setting{}
	for _, node := range c.Nodes() {
		for _, g := range hardware(node).GPUs {
			if s := (setting{g.TimeSlice, g.ComputeMode}); s != (setting{}) {
				set[g.UUID] = s
			}
		}
	}
	return set
}

// mpsLimit is what CUDA lets a container allocate, and the number of multiprocessors that it reports if that is limited.
type mpsLimit struct {
	memory          resource.Quantity
	multiprocessors *int
}

// mpsLimits are the limits in the examples with MPS, by file and pod. No public image prints them.
var mpsLimits = map[string]map[string]mpsLimit{
	"mps-private.yaml": {"mps-private": {memory: resource.MustParse("8Gi")}},
	"mps-share.yaml": {
		"half":           {resource.MustParse("39Gi"), new(66)},
		"first-quarter":  {resource.MustParse("20Gi"), new(32)},
		"second-quarter": {resource.MustParse("20Gi"), new(32)},
	},
	"mps-slice.yaml": {"mps-slice": {resource.MustParse("10Gi"), new(30)}},
}

var _ = Describe("Examples", func() {
	for _, example := range examples {
		It("come out as "+example.File+" says", func(ctx context.Context) {
			watcher, err := expect.NewWatcher(ctx, c.Client)
			Expect(err).NotTo(HaveOccurred())
			runExample(ctx, watcher, example)
		}, atMost)
	}

	for file, limits := range mpsLimits {
		It("limit under MPS what CUDA gives, in "+file, func(ctx context.Context) {
			watcher, err := expect.NewWatcher(ctx, c.Client)
			Expect(err).NotTo(HaveOccurred())
			example := withProbe(exampleOf(file), "sh", "-c", "probe && exec probe --stay 3 share")
			Expect(example.Subjects).To(HaveLen(len(limits)))
			for i := range example.Subjects {
				e := &example.Subjects[i].Expectation
				limit := limits[example.Subjects[i].Name]
				e.Log, e.Allocates, e.Multiprocessors = "", &limit.memory, limit.multiprocessors
			}
			runExample(ctx, watcher, example)
		}, atMost)
	}

	It("set what the parameters say on the hardware", func(ctx context.Context) {
		const short, long = 1, 3
		watcher, err := expect.NewWatcher(ctx, c.Client)
		Expect(err).NotTo(HaveOccurred())
		outcomes := runExample(ctx, watcher, staying(exampleOf("class-parameters.yaml")))
		want := map[string]setting{}
		for _, outcome := range outcomes {
			interval := map[string]int{"class-parameters": long, "claim-parameters": short}[outcome.Subject.Name]
			want[outcome.Pods[0].Grants()[0].UUID] = setting{TimeSlice: interval}
		}
		Expect(want).To(HaveLen(2))
		Expect(settings()).To(Equal(want))
	})

	It("serve while a Deployment is updated, and hand its GPU over", func(ctx context.Context) {
		watcher, err := expect.NewWatcher(ctx, c.Client)
		Expect(err).NotTo(HaveOccurred())
		before := runExample(ctx, watcher, exampleOf("deployment.yaml"))[0]
		old := before.Pods[0]
		service, err := c.Client.CoreV1().Services("default").Get(ctx, "model", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		ask := func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			out, err := node("node1").Exec(ctx, "busybox", "wget", "-q", "-O", "-", "http://"+service.Spec.ClusterIP+":80")
			return string(out), err
		}
		Eventually(ctx, ask).Should(ContainSubstring(old.Grants()[0].UUID))

		pods := c.Client.CoreV1().Pods("default")
		begun, err := pods.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		changes, err := watchtools.NewRetryWatcherWithContext(ctx, begun.ResourceVersion, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = "app=model"
				return pods.Watch(ctx, o)
			},
		})
		Expect(err).NotTo(HaveOccurred())
		defer changes.Stop()
		patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"example.com/version":"2"}}}}}`)
		_, err = c.Client.AppsV1().Deployments("default").Patch(ctx, "model", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		heldUntil, givenAt := handover(changes.ResultChan(), old.Name)
		Expect(givenAt).To(BeNumerically(">", heldUntil), "the new pod was given the GPU while the old one ran on it")

		var after expect.Outcome
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			after, err = watcher.Await(ctx, before.Subject)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(after.Pods).To(HaveLen(1))
			g.Expect(after.Pods[0].Name).NotTo(Equal(old.Name))
		}).Should(Succeed())
		Expect(expect.Compare(after, nil)).To(BeEmpty())
		Expect(after.Pods[0].Grants()[0].UUID).To(Equal(old.Grants()[0].UUID))
		Eventually(ctx, ask).Should(ContainSubstring(old.Grants()[0].UUID))
	})
})

// staying returns the example with pods that keep running.
func staying(example expect.Example) expect.Example {
	GinkgoHelper()
	changed := withProbe(example, stay()...)
	for i := range changed.Subjects {
		changed.Subjects[i].Expectation.Phase = expect.Running
		changed.Subjects[i].Expectation.Log = ""
	}
	return changed
}

// withProbe returns the example with the probe and a command of it in all containers.
func withProbe(example expect.Example, command ...string) expect.Example {
	GinkgoHelper()
	changed := example
	changed.Objects, changed.Subjects = nil, slices.Clone(example.Subjects)
	for _, object := range example.Objects {
		object = object.DeepCopy()
		if object.GetKind() == "Pod" {
			containers, ok := object.Object["spec"].(map[string]any)["containers"].([]any)
			Expect(ok).To(BeTrue())
			for _, container := range containers {
				Expect(unstructured.SetNestedField(container.(map[string]any), cluster.ProbeImage, "image")).To(Succeed())
				Expect(unstructured.SetNestedStringSlice(container.(map[string]any), command, "command")).To(Succeed())
			}
		}
		changed.Objects = append(changed.Objects, object)
	}
	return changed
}

// handover follows the pods of a Deployment until a new one is ready. It returns the number of the last change at which
// the old pod had a running container, and of the first at which a new pod had a node, and with it its devices.
func handover(changes <-chan watch.Event, old string) (heldUntil, givenAt int) {
	GinkgoHelper()
	n := 0
	for change := range changes {
		pod, ok := change.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		n++
		switch {
		case pod.Name == old && change.Type != watch.Deleted && runs(pod):
			heldUntil = n
		case pod.Name != old && pod.Spec.NodeName != "" && givenAt == 0:
			givenAt = n
		}
		if pod.Name != old && isReady(*pod) {
			return heldUntil, givenAt
		}
	}
	Fail("the watch ended before a new pod was ready")
	return 0, 0
}

// runs reports whether a container of the pod runs.
func runs(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}
