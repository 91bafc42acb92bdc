package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// The nodes: three bare ones with two operating systems, one with a preinstalled driver, one with containerd 1.7, and
// one with a classic device plugin. The last three are excluded by a label: their specs remove it.
const (
	hopper  = "node1"
	ampere  = "node2" // A30, two with MIG mode on, two off, and L40S
	older   = "node3" // another operating system and kernel
	hosted  = "node4"
	legacy  = "node5"
	classic = "node6"
)

// excluded is the label with which a user excludes a node, with its value "false".
const excluded = "nvidia.com/gpu.deploy.operands"

func nodes() []lab.NodeSpec {
	list := cluster.BareNodes()
	for _, name := range []string{hosted, legacy, classic} {
		list = append(list, lab.NodeSpec{Name: name, GPU: "t4x1,bare", Files: cluster.OSRelease(cluster.Ubuntu24), Labels: map[string]string{excluded: "false"}})
	}
	list[4].Runtime = lab.Containerd17
	list[4].Files["/usr/bin/systemctl"] = systemctl
	return list
}

// systemctl restarts containerd as a node's service manager does: it returns when the new process listens. The lab
// restarts the process that was ended.
const systemctl = `#!/bin/sh
[ "$1 $2" = "restart containerd" ] || exit 4
rm -f /run/containerd/containerd.sock
for process in /proc/[0-9]*; do
	[ "$(cat "$process/comm" 2>/dev/null)" != containerd ] || kill "${process#/proc/}"
done
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
`

// hasten shortens the rollouts of the specs that follow, as a user does with kubectl edit. The chart is installed with its defaults.
func hasten(ctx context.Context) {
	GinkgoHelper()
	edit(ctx, func(p *v1alpha1.ClusterPolicy) {
		p.Spec.Upgrade = v1alpha1.UpgradePolicy{
			Canary: new(intstr.FromInt32(0)), Soak: &metav1.Duration{Duration: time.Second}, MaxParallel: new(int32(3)),
			MaxUnavailable: new(intstr.FromString("100%")), Attempts: new(int32(2)), RetryAfter: &metav1.Duration{Duration: 5 * time.Second},
			FailureBudget: new(intstr.FromInt32(2)), Drain: v1alpha1.DrainSpec{Timeout: &metav1.Duration{Duration: 15 * time.Second}},
		}
	})
}

func node(name string) *lab.Node {
	GinkgoHelper()
	n, err := c.Node(name)
	Expect(err).NotTo(HaveOccurred())
	return n
}

func gpuNode(ctx context.Context, name string) *v1alpha1.GPUNode {
	GinkgoHelper()
	n, err := c.GPUNode(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	return n
}

func hardware(name string) fakegpu.State {
	GinkgoHelper()
	state, err := fakegpu.Read(node(name).GPUFolder())
	Expect(err).NotTo(HaveOccurred())
	return state
}

// where returns the state of a node as text, for failure messages.
func where(ctx context.Context, name string) (string, error) {
	return c.NodeState(ctx, name)
}

// stands waits until a node is in a phase, with the given driver version; empty means any.
func stands(ctx context.Context, name string, phase v1alpha1.NodePhase, version string) {
	GinkgoHelper()
	// A failed operation is retried after a backoff that doubles up to more than five minutes.
	Eventually(ctx, func(ctx context.Context) (string, error) { return where(ctx, name) }).WithTimeout(2 * harness.Patience).
		Should(HavePrefix("%s, %s", phase, version))
}

// allReady waits for nodes to be ready with a driver.
func allReady(ctx context.Context, version string, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		stands(ctx, name, v1alpha1.PhaseReady, version)
	}
}

// edit changes the ClusterPolicy.
func edit(ctx context.Context, change func(*v1alpha1.ClusterPolicy)) {
	GinkgoHelper()
	Expect(c.EditPolicy(ctx, change)).To(Succeed())
}

// toDriver sets the driver version of the policy.
func toDriver(ctx context.Context, version string) {
	GinkgoHelper()
	edit(ctx, func(p *v1alpha1.ClusterPolicy) { p.Spec.Driver.Version = version })
}

// history is the sequence of the nodes' states.
type history struct {
	mu    sync.Mutex
	nodes map[string][]station
	end   context.CancelFunc
}

// station is one state of a node.
type station struct {
	Phase  v1alpha1.NodePhase
	Step   v1alpha1.UpgradeStep
	Reason string
	At     time.Time
}

// record starts a history with the first GPUNode; the chart installs its CRD. It continues after the end of the spec.
func record() *history {
	ctx, cancel := context.WithCancel(context.Background())
	h := &history{nodes: map[string][]station{}, end: cancel}
	go func() {
		// Polling finds the kind soon after its creation; the retries of a watch of a missing kind would miss the first
		// steps.
		_ = harness.PollEvery(ctx, 200*time.Millisecond, func(ctx context.Context) error { return c.Kinds.List(ctx, &v1alpha1.GPUNodeList{}) })
		for ctx.Err() == nil { // the API server may be temporarily unavailable
			_ = cluster.Follow(ctx, c, &v1alpha1.GPUNodeList{}, func(n *v1alpha1.GPUNode, deleted bool) bool {
				if !deleted {
					h.add(n)
				}
				return false
			})
		}
	}()
	return h
}

func (h *history) add(n *v1alpha1.GPUNode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := station{n.Status.Phase, n.Status.Step, n.Status.Reason, time.Now()}
	seen := h.nodes[n.Name]
	if len(seen) > 0 {
		last := seen[len(seen)-1]
		if last.Phase == next.Phase && last.Step == next.Step && last.Reason == next.Reason {
			return
		}
	}
	h.nodes[n.Name] = append(seen, next)
	GinkgoWriter.Printf("%s %s: %s %s %s\n", next.At.Format(time.TimeOnly), n.Name, next.Phase, next.Step, next.Reason)
}

// of returns the history of a node so far.
func (h *history) of(name string) []station {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.nodes[name])
}

// since returns the phases and steps of a node from a time on, each as one word.
func (h *history) since(name string, from time.Time) []string {
	var words []string
	for _, s := range h.of(name) {
		word := string(s.Phase)
		if s.Step != "" {
			word = string(s.Step)
		}
		if !s.At.Before(from) && (len(words) == 0 || words[len(words)-1] != word) {
			words = append(words, word)
		}
	}
	return words
}

// room is a namespace for the pods of a spec.
type room struct{ name string }

func newRoom(ctx context.Context) room {
	GinkgoHelper()
	made, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "user-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(c.Client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, func(ctx context.Context) ([]corev1.Pod, error) {
			pods, err := c.Client.CoreV1().Pods(made.Name).List(ctx, metav1.ListOptions{})
			return pods.Items, err
		}).Should(BeEmpty())
	})
	return room{made.Name}
}

const (
	wholeClass = "gpu.tessera.dev"
	migClass   = "mig.tessera.dev"
)

// claim creates a claim of one device.
func (r room) claim(ctx context.Context, name, class string) {
	GinkgoHelper()
	_, err := c.Client.ResourceV1().ResourceClaims(r.name).Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       deviceOf(class),
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// deviceOf is a claim for a device of the class.
func deviceOf(class string) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
		{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}},
	}}}
}

// template creates a template of claims for a device of the class.
func (r room) template(ctx context.Context, name, class string) {
	GinkgoHelper()
	_, err := c.Client.ResourceV1().ResourceClaimTemplates(r.name).Create(ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: deviceOf(class)},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// fromTemplate gives each pod its own claim, from the template with the name of the claim. kube-scheduler starts the replacement of an evicted pod on the GPU
// of a claim that both use, also while the GPU is drained.
func fromTemplate(spec *corev1.PodSpec) {
	for i := range spec.ResourceClaims {
		claim := &spec.ResourceClaims[i]
		claim.ResourceClaimName, claim.ResourceClaimTemplateName = nil, claim.ResourceClaimName
	}
}

// spec returns a pod spec with a claim on a node: the pod reads its GPU once and keeps it.
func (r room) spec(on, claim string) corev1.PodSpec {
	return corev1.PodSpec{
		NodeSelector:   map[string]string{corev1.LabelHostname: on},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}},
		Containers: []corev1.Container{{
			Name: "main", Image: cluster.ProbeImage, Command: []string{"probe", "--stay", "100000"},
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
		}},
		TerminationGracePeriodSeconds: new(int64(2)),
	}
}

// awaitRunning waits until a pod of the room with the label app runs on the node, and returns it.
func (r room) awaitRunning(ctx context.Context, app, on string, not ...string) *corev1.Pod {
	GinkgoHelper()
	var found corev1.Pod
	Eventually(ctx, func(ctx context.Context) error {
		pods, err := c.Client.CoreV1().Pods(r.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
			if p.Spec.NodeName == on && p.DeletionTimestamp == nil && ready && !slices.Contains(not, string(p.UID)) {
				found = p
				return nil
			}
		}
		return fmt.Errorf("no pod %s runs on %s: %s", app, on, summary(pods.Items))
	}).Should(Succeed())
	return &found
}

// leaving returns the terminating pods of the room.
func (r room) leaving(ctx context.Context) ([]string, error) {
	pods, err := c.Client.CoreV1().Pods(r.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			names = append(names, pod.Name)
		}
	}
	return names, nil
}

func summary(pods []corev1.Pod) string {
	var lines []string
	for _, p := range pods {
		line := fmt.Sprintf("%s on %s is %s", p.Name, p.Spec.NodeName, p.Status.Phase)
		if p.DeletionTimestamp != nil {
			line += " and leaving"
		}
		for _, condition := range p.Status.Conditions {
			if condition.Status != corev1.ConditionTrue && condition.Message != "" {
				line += ": " + condition.Message
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// operand returns the pods of an operand on a node.
func operand(ctx context.Context, name, on string) []corev1.Pod {
	GinkgoHelper()
	pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=" + name, FieldSelector: "spec.nodeName=" + on,
	})
	Expect(err).NotTo(HaveOccurred())
	return pods.Items
}
