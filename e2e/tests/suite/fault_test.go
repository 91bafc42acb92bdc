package suite

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// GPU indices of the shapes that pods hold on node1 while faults are injected. Two MIG devices are on the first GPU.
const (
	sliced, turned, served, whole = 0, 1, 2, 3
)

// shaped returns the names of the pods and the indices of their GPUs.
func shaped() map[string]int {
	return map[string]int{"slice": sliced, "neighbour": sliced, "turns": turned, "mps": served, "whole": whole}
}

// Name and key of the agents' configuration.
const (
	nodeConfig    = "tessera-node-config"
	nodeConfigKey = "node.yaml"
)

// configuration returns the agents' configuration.
func configuration(ctx context.Context) string {
	GinkgoHelper()
	config, err := c.Client.CoreV1().ConfigMaps(cluster.Namespace).Get(ctx, nodeConfig, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return config.Data[nodeConfigKey]
}

// judge restarts the agent of a node with other health rules.
func judge(ctx context.Context, on *lab.Node, rules map[string]any) {
	GinkgoHelper()
	var all map[string]any
	Expect(yaml.Unmarshal([]byte(configuration(ctx)), &all)).To(Succeed())
	all["health"] = rules
	text, err := yaml.Marshal(all)
	Expect(err).NotTo(HaveOccurred())
	reconfigure(ctx, on, string(text))
}

// reconfigure restarts the agent of a node with a configuration. It retries if kubelet mounts a cached version of the
// ConfigMap.
func reconfigure(ctx context.Context, on *lab.Node, text string) {
	GinkgoHelper()
	maps := c.Client.CoreV1().ConfigMaps(cluster.Namespace)
	config, err := maps.Get(ctx, nodeConfig, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	config.Data[nodeConfigKey] = text
	_, err = maps.Update(ctx, config, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		crash(ctx, on)
		pod := agent(ctx, on.Name())
		file := path.Join("/var/lib/kubelet/pods", string(pod.UID), "volumes/kubernetes.io~configmap/config", nodeConfigKey)
		g.Expect(on.Exec(ctx, "cat", file)).To(BeEquivalentTo(text))
	}).Should(Succeed())
}

// fences returns the taints of a node's devices.
func fences(ctx context.Context, on *lab.Node) expect.Fences {
	GinkgoHelper()
	return expect.ReadFences(slicesOf(ctx, on))
}

// entire returns the taints of a node's devices after all devices are published.
func entire(ctx context.Context, on *lab.Node) expect.Fences {
	GinkgoHelper()
	return expect.ReadFences(pool(ctx, on))
}

// marked waits until the taint of the signal is on exactly the devices for which the mark is not empty.
func marked(ctx context.Context, on *lab.Node, signal gpu.Signal, mark func(gpu.Device) string) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) error {
		f := fences(ctx, on)
		if !f.Whole {
			return fmt.Errorf("%s publishes its devices", on.Name())
		}
		want, got := f.Marked(mark), f.Of(v1alpha1.DriverName, signal)
		for name := range f.Devices {
			if want[name] != got[name] {
				return fmt.Errorf("%s: %s is %q, want %q; %d of %d devices are marked", signal, name, got[name], want[name], len(got), len(want))
			}
		}
		return nil
	}).WithPolling(50 * time.Millisecond).Should(Succeed())
}

// nowhere is the mark of a signal that is absent.
func nowhere(gpu.Device) string { return "" }

// onGPUs returns a mark for all devices of the GPUs of a node.
func onGPUs(on *lab.Node, mark string, indices ...int) func(gpu.Device) string {
	GinkgoHelper()
	var names []string
	for _, i := range indices {
		names = append(names, physical(on, hardware(on).GPUs[i].UUID).Name())
	}
	return func(d gpu.Device) string {
		if slices.Contains(names, d.GPU) {
			return mark
		}
		return ""
	}
}

// told returns the health of a pod's device in its status, such as "Unhealthy: XID 48 …".
func (r room) told(ctx context.Context, name string) (string, error) {
	pod, err := r.pod(ctx, name)
	if err != nil || len(pod.Status.ContainerStatuses) == 0 {
		return "", err
	}
	var words []string
	for _, resource := range pod.Status.ContainerStatuses[0].AllocatedResourcesStatus {
		for _, h := range resource.Resources {
			word := string(h.Health)
			if h.Message != nil && *h.Message != "" {
				word += ": " + *h.Message
			}
			words = append(words, word)
		}
	}
	return strings.Join(words, "; "), nil
}

// tells waits until the status of these pods begins with the given health.
func (r room) tells(ctx context.Context, word corev1.ResourceHealthStatus, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Eventually(ctx, func(ctx context.Context) (string, error) { return r.told(ctx, name) }).
			WithPolling(50*time.Millisecond).Should(HavePrefix(string(word)), "the status of pod %s", name)
	}
}

// unwell returns the claims whose condition Healthy is False, sorted.
func (r room) unwell(ctx context.Context) ([]string, error) {
	claims, err := r.Client.ResourceV1().ResourceClaims(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, claim := range claims.Items {
		for _, d := range claim.Status.Devices {
			if meta.IsStatusConditionFalse(d.Conditions, "Healthy") && !slices.Contains(names, claim.Name) {
				names = append(names, claim.Name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// holdShapes creates pods that hold every shape.
func (r room) holdShapes(ctx context.Context, on *lab.Node) {
	GinkgoHelper()
	gpus := hardware(on).GPUs
	r.claim(ctx, "slice", request("slice", migClass, onParent(gpus[sliced].UUID), profile(twoSlices)))
	r.claim(ctx, "neighbour", request("slice", migClass, onParent(gpus[sliced].UUID), profile(oneSlice)))
	r.claim(ctx, "turns", share(timeShareClass, gpus[turned].UUID, "10Gi", ""))
	r.claim(ctx, "mps", third(gpus[served].UUID))
	r.claim(ctx, "whole", request("gpu", wholeClass, onGPU(gpus[whole].UUID)))
	for name := range shaped() {
		r.create(ctx, podOf(name, stay(), name))
	}
	for name := range shaped() {
		r.running(ctx, name)
	}
}

// times are measured durations by name.
type times map[string]report.Samples

// say adds the measurements to the suite's report.
func (t times) say() {
	for what, samples := range t {
		AddReportEntry(fmt.Sprintf("from the fault until %s: p50 %v, p99 %v, of %d", what, samples.Median().Round(time.Millisecond),
			samples.Quantile(.99).Round(time.Millisecond), len(samples)))
	}
}

// cured clears all faults of a node's hardware and waits until the agent has noticed. It reboots the node for faults
// that only a reboot ends.
func cured(ctx context.Context, on *lab.Node) {
	GinkgoHelper()
	Expect(fakegpu.Reset(on.GPUFolder())).To(Succeed())
	if entire(ctx, on).Count(v1alpha1.DriverName) == 0 {
		return
	}
	rebooted(ctx, on)
	Eventually(ctx, func(ctx context.Context) int { return entire(ctx, on).Count(v1alpha1.DriverName) }).Should(BeZero())
}

// rebooted power-cycles the node and waits until its agent is ready.
func rebooted(ctx context.Context, on *lab.Node) {
	GinkgoHelper()
	before := agent(ctx, on.Name())
	Expect(on.Kill(ctx)).To(Succeed())
	Expect(on.Start(ctx)).To(Succeed())
	Eventually(ctx, func(ctx context.Context) string {
		after := agent(ctx, on.Name())
		return container(&after)
	}).ShouldNot(Equal(container(&before)), "what the API server says of the agent is of this boot")
}
