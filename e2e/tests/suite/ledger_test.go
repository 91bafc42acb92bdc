package suite

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// Folders of the agent on a node.
const (
	pluginData = "/var/lib/kubelet/plugins/gpu.tessera.dev"
	recordsDir = pluginData + "/claims"
	cdiDir     = "/var/run/cdi"
	daemonsDir = "/run/tessera/mps"
)

// ledger lists everything on a node that a claim can leave behind.
type ledger struct {
	// Instances are the MIG devices, read from the hardware's own state.
	Instances []string
	// Records and Specs are the files of claims.
	Records, Specs []string
	// Daemons are the folders of MPS daemons, Modes the GPU settings other than MIG.
	Daemons, Modes []string
}

// count reads the ledger of a node.
func count(ctx context.Context, node *lab.Node) ledger {
	GinkgoHelper()
	l := ledger{Records: files(ctx, node, recordsDir), Specs: claimSpecs(files(ctx, node, cdiDir))}
	for _, g := range hardware(node).GPUs {
		for _, i := range g.Instances {
			l.Instances = append(l.Instances, fmt.Sprintf("%d/%s@%d", g.Index, i.Name, i.Start))
		}
		if g.TimeSlice != 0 {
			l.Modes = append(l.Modes, fmt.Sprintf("%d: time slice %d", g.Index, g.TimeSlice))
		}
		if g.ComputeMode != fakegpu.ComputeDefault {
			l.Modes = append(l.Modes, fmt.Sprintf("%d: compute mode %d", g.Index, g.ComputeMode))
		}
	}
	l.Daemons = found(ctx, node, daemonsDir, "-mindepth", "1", "-printf", "%f\n")
	for _, list := range [][]string{l.Records, l.Specs, l.Daemons} {
		slices.Sort(list)
	}
	return l
}

// empty reports whether the ledger has no entries.
func (l ledger) empty() bool {
	return len(l.Instances)+len(l.Records)+len(l.Specs)+len(l.Daemons)+len(l.Modes) == 0
}

// hardware returns the state of a node's GPUs, read without NVML.
func hardware(node *lab.Node) fakegpu.State {
	GinkgoHelper()
	state, err := fakegpu.Read(node.GPUFolder())
	Expect(err).NotTo(HaveOccurred())
	return state
}

func files(ctx context.Context, node *lab.Node, folder string) []string {
	GinkgoHelper()
	return found(ctx, node, folder, "-type", "f", "-name", "*.json*", "-printf", "%f\n")
}

// found returns the output of find in a folder, split into words.
func found(ctx context.Context, node *lab.Node, folder string, expression ...string) []string {
	GinkgoHelper()
	out := answer(ctx, func(ctx context.Context) ([]byte, error) {
		return node.Exec(ctx, append([]string{"find", folder, "-maxdepth", "1"}, expression...)...)
	})
	return strings.Fields(string(out))
}

// claimSpecs returns the specs of claims without the common spec.
func claimSpecs(names []string) []string {
	var specs []string
	for _, name := range names {
		if strings.Contains(name, "claim") {
			specs = append(specs, name)
		}
	}
	return specs
}

// nothingLeft checks that no claim has left anything on any node.
func nothingLeft(ctx context.Context) {
	GinkgoHelper()
	for _, node := range c.Nodes() {
		Eventually(ctx, func(ctx context.Context) ledger { return count(ctx, node) }).Should(
			Satisfy(ledger.empty), "on %s", node.Name())
	}
}

// node returns a node by name.
func node(name string) *lab.Node {
	GinkgoHelper()
	n, err := c.Node(name)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// agent returns the running agent of a node.
func agent(ctx context.Context, node string) corev1.Pod {
	GinkgoHelper()
	var found corev1.Pod
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=" + node, LabelSelector: "app.kubernetes.io/name=" + cluster.AgentName,
		})
		g.Expect(err).NotTo(HaveOccurred())
		var ready []corev1.Pod
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp == nil && isReady(pod) {
				ready = append(ready, pod)
			}
		}
		g.Expect(ready).To(HaveLen(1))
		found = ready[0]
	}).Should(Succeed())
	return found
}

func isReady(pod corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// metric returns an unlabeled metric of a node's agent.
func metric(ctx context.Context, node *lab.Node, name string) float64 {
	GinkgoHelper()
	token, err := harness.ScrapeToken(ctx, c.Client, "suite-metrics", "tessera-metrics-reader")
	Expect(err).NotTo(HaveOccurred())
	out := answer(ctx, func(ctx context.Context) ([]byte, error) {
		pod := agent(ctx, node.Name())
		return node.Exec(ctx, "curl", "-sSk", "--fail", "--max-time", "5", "-H", "Authorization: Bearer "+token, "https://"+pod.Status.PodIP+":8080/metrics")
	})
	for line := range strings.Lines(string(out)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			Expect(err).NotTo(HaveOccurred())
			return number
		}
	}
	Fail("no metric " + name)
	return 0
}
