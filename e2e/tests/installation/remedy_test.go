package installation

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// heals covers GPUs that become unhealthy and recover.
func heals() {
	It("says what it would do about a sick GPU; told to act, it takes it out, resets it, proves it and gives it back, and nobody else notices", func(ctx context.Context) {
		r := newRoom(ctx)
		r.template(ctx, "sick", wholeClass)
		r.claim(ctx, "well", wholeClass)
		user := r.spec(hopper, "sick")
		fromTemplate(&user)
		r.deploy(ctx, "sick", user)
		r.deploy(ctx, "well", r.spec(hopper, "well"))
		sick, well := r.awaitRunning(ctx, "sick", hopper), r.awaitRunning(ctx, "well", hopper)
		index := r.gpuOf(ctx, hopper, sick.Name)
		exporter := operand(ctx, "tessera-dcgm-exporter", hopper)
		Expect(exporter).To(HaveLen(1))

		fallIll(hopper, index)
		Eventually(ctx, func(ctx context.Context) (string, error) { return remedies(ctx, hopper) }).Should(HavePrefix("%s Suggested", gpuName(hopper, index)))
		Expect(meta.IsStatusConditionFalse(gpuNode(ctx, hopper).Status.Conditions, v1alpha1.ConditionGPUsHealthy)).To(BeTrue())
		Expect(hardware(hopper).GPUs[index].Resets).To(BeZero(), "a suggestion does nothing")
		Expect(r.awaitRunning(ctx, "sick", hopper).UID).To(Equal(sick.UID))

		w := watchRemedies(ctx)
		DeferCleanup(w.end)
		act(ctx, 1)
		recovered(ctx, hopper, index)
		inOrder(ctx, func() []string { return w.of(hopper, index) }, "Hold", "Drain", "Reset", "Validate", "Restore")
		Expect(hardware(hopper).GPUs[index].Resets).To(Equal(1))
		Expect(r.awaitRunning(ctx, "well", hopper).UID).To(Equal(well.UID), "a pod on another GPU was disturbed")
		Expect(r.awaitRunning(ctx, "sick", hopper).UID).NotTo(Equal(sick.UID))
		Eventually(ctx, func(ctx context.Context) ([]string, error) { return taints(ctx, hopper) }).Should(BeEmpty())
		Eventually(ctx, func(ctx context.Context) (int, error) {
			text, err := metrics(ctx, hopper)
			return strings.Count(text, "\nDCGM_FI_DEV_FB_USED{"), err
		}).Should(Equal(len(hardware(hopper).GPUs)), "monitoring is back")
		Expect(operand(ctx, "tessera-dcgm-exporter", hopper)[0].UID).NotTo(Equal(exporter[0].UID), "monitoring left: it keeps the GPU open")
		served(ctx, hopper)
	}, limit)

	It("takes out one of two sick GPUs where the budget is one, waits for a pod that a disruption budget keeps, and then does the other", func(ctx context.Context) {
		act(ctx, 1)
		r, pod, first := gpuUser(ctx, "kept")
		r.keep(ctx, "kept")
		second := 4 // an unused L40S of node2
		before := []int{hardware(hopper).GPUs[first].Resets, hardware(ampere).GPUs[second].Resets}
		w := watchRemedies(ctx)
		DeferCleanup(w.end)

		fallIll(hopper, first)
		Eventually(ctx, func(ctx context.Context) (string, error) { return remedies(ctx, hopper) }).
			Should(SatisfyAll(ContainSubstring("Drain"), ContainSubstring(pod.Name)), "it says who is in the way")
		fallIll(ampere, second)
		Eventually(ctx, func(ctx context.Context) (string, error) { return remedies(ctx, ampere) }).Should(ContainSubstring("Waiting BudgetExhausted"))
		Expect(r.awaitRunning(ctx, "kept", hopper).UID).To(Equal(pod.UID), "the disruption budget is respected")
		Expect([]int{hardware(hopper).GPUs[first].Resets, hardware(ampere).GPUs[second].Resets}).To(Equal(before))

		Expect(c.Client.PolicyV1().PodDisruptionBudgets(r.name).Delete(ctx, "kept", metav1.DeleteOptions{})).To(Succeed())
		recovered(ctx, hopper, first)
		recovered(ctx, ampere, second)
		Expect(w.most()).To(Equal(1), "GPUs that were out of service at a time")
		Expect([]int{hardware(hopper).GPUs[first].Resets, hardware(ampere).GPUs[second].Resets}).To(Equal([]int{before[0] + 1, before[1] + 1}))
		r.awaitRunning(ctx, "kept", hopper, string(pod.UID))
	}, limit)

	It("evicts no pod that replaces an evicted one on the GPU that is drained, names it, and resets the GPU once its controller is scaled down", func(ctx context.Context) {
		act(ctx, 1)
		r, _, index := gpuUser(ctx, "user", func(spec *corev1.PodSpec) {
			// The pods end after their replacements have started: kubelet keeps the claim prepared, and the agent is not requested to prepare it.
			spec.TerminationGracePeriodSeconds = new(int64(20))
			spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 15}}}
		})

		fallIll(hopper, index)
		Eventually(ctx, func(ctx context.Context) (string, error) { return remedies(ctx, hopper) }).
			Should(ContainSubstring("it replaces an evicted pod, and its claim stays allocated while pods use it; scale its controller down"))
		kept := func(ctx context.Context) ([]types.UID, error) {
			pods, err := c.Client.CoreV1().Pods(r.name).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var uids []types.UID
			for _, p := range pods.Items {
				if p.DeletionTimestamp == nil {
					uids = append(uids, p.UID)
				}
			}
			return uids, nil
		}
		replacement, err := kept(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(replacement).To(HaveLen(1))
		Consistently(ctx, kept).WithTimeout(25*time.Second).Should(Equal(replacement), "an eviction would be retried after 10 s")

		r.remove(ctx, "user")
		recovered(ctx, hopper, index)
	}, limit)

	It("goes on with a remedy where it was when it is killed at every step", func(ctx context.Context) {
		act(ctx, 1)
		r, pod, index := gpuUser(ctx, "user", fromTemplate)
		before := hardware(hopper).GPUs[index].Resets
		fallsIll := sync.OnceFunc(func() {
			// This fault differs from those of the two resets today, after which a reboot would be requested.
			Expect(fakegpu.ECC(node(hopper).GPUFolder(), index, 0, 1)).To(Succeed())
		})
		var killed []v1alpha1.RemediationStep
		// Some steps are short: only a watch of the node receives every one.
		Expect(cluster.Follow(ctx, c, &v1alpha1.GPUNodeList{}, func(n *v1alpha1.GPUNode, _ bool) bool {
			fallsIll()
			for _, s := range n.Status.Remediations {
				if s.GPU == gpuName(hopper, index) && !slices.Contains(killed, s.Step) {
					killed = append(killed, s.Step)
					killInstaller(ctx)
					GinkgoWriter.Printf("%s killed at %s\n", time.Now().Format(time.TimeOnly), s.Step)
				}
			}
			return slices.Contains(killed, v1alpha1.RemediationStepRestore)
		})).To(Succeed())
		Expect(killed).To(ContainElements(v1alpha1.RemediationStepHold, v1alpha1.RemediationStepDrain, v1alpha1.RemediationStepReset, v1alpha1.RemediationStepValidate, v1alpha1.RemediationStepRestore))
		recovered(ctx, hopper, index)
		Expect(hardware(hopper).GPUs[index].Resets).To(Equal(before+1), "it was reset once")
		r.awaitRunning(ctx, "user", hopper, string(pod.UID))
		Eventually(ctx, installerReady).Should(BeTrue())
	}, limit)
}

// act lets the installer remediate GPUs, at most atOnce at a time, until the spec ends.
func act(ctx context.Context, atOnce int32) {
	GinkgoHelper()
	edit(ctx, func(p *v1alpha1.ClusterPolicy) {
		p.Spec.Remediation.Mode, p.Spec.Remediation.MaxParallel = v1alpha1.RemediationAct, &atOnce
		p.Spec.Remediation.Drain.Timeout = &metav1.Duration{Duration: time.Hour} // no drain times out during the spec
	})
	DeferCleanup(func(ctx context.Context) {
		edit(ctx, func(p *v1alpha1.ClusterPolicy) { p.Spec.Remediation.Mode = v1alpha1.RemediationSuggest })
	})
}

// gpuUser runs a Deployment with one pod, which has a whole GPU by a named claim and the changes, and returns its room, the pod and the GPU's index on the node.
func gpuUser(ctx context.Context, app string, changes ...func(*corev1.PodSpec)) (room, *corev1.Pod, int) {
	GinkgoHelper()
	r := newRoom(ctx)
	r.claim(ctx, "gpu", wholeClass)
	r.template(ctx, "gpu", wholeClass)
	spec := r.spec(hopper, "gpu")
	for _, change := range changes {
		change(&spec)
	}
	r.deploy(ctx, app, spec)
	pod := r.awaitRunning(ctx, app, hopper)
	return r, pod, r.gpuOf(ctx, hopper, pod.Name)
}

// fallIll injects a fault that requires a reset: a pending row remap.
func fallIll(name string, index int) {
	GinkgoHelper()
	Expect(fakegpu.Remap(node(name).GPUFolder(), index, fakegpu.Remapping{Uncorrectable: 1, Pending: true})).To(Succeed())
}

// gpuName returns the name of the GPU at the index.
func gpuName(name string, index int) string {
	GinkgoHelper()
	machine, _, _ := strings.Cut(node(name).GPU(), ",")
	m, err := catalog.FindMachine(machine)
	Expect(err).NotTo(HaveOccurred())
	n, err := m.Node(name)
	Expect(err).NotTo(HaveOccurred())
	return n.GPUs[index].Name()
}

// uuidOf matches the UUID in the probe's output.
var uuidOf = regexp.MustCompile(`GPU-[0-9a-f-]{36}`)

// gpuOf returns the index of the pod's GPU.
func (r room) gpuOf(ctx context.Context, on, pod string) int {
	GinkgoHelper()
	var uuid string
	Eventually(ctx, func(ctx context.Context) (string, error) {
		text, err := r.says(ctx, pod)
		uuid = uuidOf.FindString(text)
		return uuid, err
	}).ShouldNot(BeEmpty())
	index := slices.IndexFunc(hardware(on).GPUs, func(g fakegpu.GPUState) bool { return g.UUID == uuid })
	Expect(index).To(BeNumerically(">=", 0), "%s on %s", uuid, on)
	return index
}

// keep creates a PodDisruptionBudget that forbids evictions of a Deployment's pods.
func (r room) keep(ctx context.Context, app string) {
	GinkgoHelper()
	_, err := c.Client.PolicyV1().PodDisruptionBudgets(r.name).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// remedies returns the state of a node's unhealthy GPUs, one line each.
func remedies(ctx context.Context, name string) (string, error) {
	n, err := c.GPUNode(ctx, name)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, s := range n.Status.Remediations {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", s.GPU, s.Step, s.Reason, s.Message))
	}
	return strings.Join(lines, "\n"), nil
}

// recovered waits until a node needs no remediation, and the last remediation in its history is that of the GPU and
// succeeded.
func recovered(ctx context.Context, name string, index int) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (string, error) {
		n, err := c.GPUNode(ctx, name)
		if err != nil {
			return "", err
		}
		if len(n.Status.Remediations) > 0 || len(n.Status.History) == 0 {
			return remedies(ctx, name)
		}
		last := slices.MaxFunc(n.Status.History, func(a, b v1alpha1.RemediationRecord) int { return a.Ended.Compare(b.Ended.Time) })
		return fmt.Sprintf("%s %s: %s", last.GPU, last.Outcome, last.Message), nil
	}).Should(HavePrefix("%s %s", gpuName(name, index), v1alpha1.OutcomeRecovered))
	Eventually(ctx, func(ctx context.Context) (bool, error) {
		n, err := c.GPUNode(ctx, name)
		return err == nil && len(n.Spec.Remediations) == 0 && !meta.IsStatusConditionFalse(n.Status.Conditions, v1alpha1.ConditionGPUsHealthy), err
	}).Should(BeTrue(), "%s is in service", name)
}

// taints returns the distinct taints of the devices of a node.
func taints(ctx context.Context, name string) ([]string, error) {
	slicesOf, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return nil, err
	}
	var list []string
	for _, s := range slicesOf.Items {
		for _, d := range s.Spec.Devices {
			for _, taint := range d.Taints {
				list = append(list, taint.Key+"="+taint.Value+" "+string(taint.Effect))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// rebootWanted reports whether a reboot of a node is requested.
func rebootWanted(ctx context.Context, name string) (bool, error) {
	n, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	g, err := c.GPUNode(ctx, name)
	return err == nil && n.Labels[v1alpha1.LabelRebootRequired] == "true" && meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionRebootRequired), err
}

// course is the observed sequence of remediation steps of GPUs.
type course struct {
	mutex  sync.Mutex
	steps  map[string][]string
	out    map[string]bool
	atOnce int
	end    context.CancelFunc
}

// watchRemedies starts recording and returns when the watch is established. The recording ends with the course.
func watchRemedies(ctx context.Context) *course {
	GinkgoHelper()
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &course{steps: map[string][]string{}, out: map[string]bool{}, end: cancel}
	began := make(chan struct{})
	listed := sync.OnceFunc(func() { close(began) })
	go func() {
		for following.Err() == nil { // the API server may be temporarily unavailable
			_ = cluster.Follow(following, c, &v1alpha1.GPUNodeList{}, func(n *v1alpha1.GPUNode, _ bool) bool {
				w.add(n)
				listed()
				return false
			})
		}
	}()
	Eventually(ctx, began).Should(BeClosed())
	return w
}

func (w *course) add(n *v1alpha1.GPUNode) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for key := range w.out {
		if strings.HasPrefix(key, n.Name+" ") {
			delete(w.out, key)
		}
	}
	for _, s := range n.Status.Remediations {
		key := n.Name + " " + s.GPU
		if seen := w.steps[key]; len(seen) == 0 || seen[len(seen)-1] != string(s.Step) {
			w.steps[key] = append(seen, string(s.Step))
			GinkgoWriter.Printf("%s %s: %s %s: %s\n", time.Now().Format(time.TimeOnly), key, s.Step, s.Reason, s.Message)
		}
	}
	for _, order := range n.Spec.Remediations {
		w.out[n.Name+" "+order.GPU] = true
	}
	w.atOnce = max(w.atOnce, len(w.out))
}

// of returns the steps of a GPU.
func (w *course) of(name string, index int) []string {
	GinkgoHelper()
	key := name + " " + gpuName(name, index)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.Clone(w.steps[key])
}

// most returns the largest number of GPUs of the cluster that were out of service at the same time.
func (w *course) most() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.atOnce
}
