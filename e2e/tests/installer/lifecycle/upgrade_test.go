package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// wave is the way of a node through an upgrade.
var wave = []string{
	"Upgrading/Taint", "Upgrading/Refuse", "Upgrading/Drain", "Upgrading/StopAgent", "Upgrading/Remove", "Upgrading/Operate", "Upgrading/Start",
	"Upgrading/Validate", "Upgrading/Restore", "Ready",
}

// TestA6KilledAtEveryStep kills the installer after each of its writes: it resumes, evicts once, and the node takes the same way.
func TestA6KilledAtEveryStep(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	user := w.user("training", "n1")
	w.stop()
	w.policy(version("580.2"))
	evictions := w.killedAtEveryWrite(func() bool {
		return w.gpunode("n1").Status.Phase == v1alpha1.PhaseReady && w.images()["n1"] == "580.2-debian12"
	})
	if evictions != 1 || w.exists(user) {
		t.Errorf("%d evictions; the pod stayed: %v", evictions, w.exists(user))
	}
	way := w.way("n1")
	if diff := cmp.Diff(wave, way[len(way)-min(len(wave), len(way)):]); diff != "" {
		t.Error(diff)
	}
}

// TestA7LabelsOnly evict no pod and write to no driver.
func TestA7LabelsOnly(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	user := w.user("training", "n1")
	w.settle()
	pods, sets := w.podUIDs("tessera-driver"), w.sets()[0].ResourceVersion
	w.policy(func(s *v1alpha1.ClusterPolicySpec) { s.DaemonSets.Labels = map[string]string{"team": "a"} })
	w.untilReady()
	w.until("other operands have the label", func() string {
		list := &corev1.PodList{}
		w.must(w.admin.List(t.Context(), list, client.InNamespace(home), client.MatchingLabels{"team": "a", "app.kubernetes.io/name": "tessera-dcgm-exporter"}))
		if len(list.Items) == 0 {
			return "the exporter has not"
		}
		return ""
	})
	if !w.exists(user) {
		t.Error("the user's pod is gone")
	}
	if now := w.podUIDs("tessera-driver"); len(pods) != 1 || !maps.Equal(pods, now) || w.sets()[0].ResourceVersion != sets {
		t.Errorf("the driver was written or restarted: its pods were %v and are %v", pods, now)
	}
	if slicesContain(w.steps("n1"), "Upgrading") {
		t.Errorf("the node went through %v", w.steps("n1"))
	}
}

// TestA8ConfigMapContent reinstalls the driver.
func TestA8ConfigMapContent(t *testing.T) {
	w := newWorld(t)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "modules"}, Data: map[string]string{"nvidia.conf": "a=1"}}
	w.must(w.admin.Create(t.Context(), config))
	w.policy(func(s *v1alpha1.ClusterPolicySpec) { s.Driver.KernelModuleConfig = "modules" })
	w.join(machine{name: "n1"})
	w.start()
	w.untilPhase(v1alpha1.PhaseReady, "n1")
	before := w.gpunode("n1").Spec.Driver.Digest
	w.edit(config, func(o client.Object) { o.(*corev1.ConfigMap).Data["nvidia.conf"] = "a=2" })
	w.until("the node has another driver", func() string {
		node := &v1alpha1.GPUNode{}
		w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: "n1"}, node))
		if node.Spec.Driver.Digest == before || node.Status.Phase != v1alpha1.PhaseReady {
			return "it has not"
		}
		return ""
	})
	w.untilReady()
	w.until("the old driver's DaemonSet is removed", func() string {
		if n := len(w.sets()); n != 1 {
			return fmt.Sprintf("there are %d", n)
		}
		return ""
	})
}

// TestA9OneNodeFails: the others finish, it returns to the old driver and reports the reason; a second failure pauses the rollout and
// reports the reason.
func TestA9OneNodeFails(t *testing.T) {
	w := installed(t, machine{name: "n1"}, machine{name: "n2"}, machine{name: "n3"})
	w.configure(func(s *simulator) { s.driverFaults["n2 580.2"] = driverCrashes })
	w.policy(version("580.2"))
	w.untilPhase(v1alpha1.PhaseRolledBack, "n2")
	w.until("the others have the driver", func() string {
		images := w.images()
		for _, name := range []string{"n1", "n3"} {
			if images[name] != "580.2-debian12" {
				return name + " has " + images[name]
			}
		}
		return ""
	})
	w.untilPhase(v1alpha1.PhaseReady, "n1", "n3")
	s := w.gpunode("n2").Status
	const why = "NoSupportedGPU: container nvidia-driver-ctr exited with code 1: modprobe: ERROR: could not insert 'nvidia': No such device; no GPU"
	if !strings.Contains(s.Message, why) || s.Attempt == nil || w.images()["n2"] != "580.1-debian12" {
		t.Errorf("n2 runs %s, message %q, attempt %v", w.images()["n2"], s.Message, s.Attempt)
	}
	w.until("the policy reports it", func() string {
		policy := get(w, &v1alpha1.ClusterPolicy{}, "", v1alpha1.ClusterPolicyName)
		return missingCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded, metav1.ConditionTrue, policy.Generation)
	})
}

// TestA9SecondFailurePauses and leaves the rest as it is.
func TestA9SecondFailurePauses(t *testing.T) {
	w := installed(t, machine{name: "n1"}, machine{name: "n2"}, machine{name: "n3"}, machine{name: "n4"})
	w.configure(func(s *simulator) { s.driverFaults["* 580.2"] = driverCrashes })
	w.policy(func(s *v1alpha1.ClusterPolicySpec) {
		s.Driver.Version, s.Upgrade.Canary = "580.2", new(intstr.FromInt32(0))
	})
	w.until("the rollout pauses", func() string {
		policy := &v1alpha1.ClusterPolicy{}
		w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy))
		return missingCondition(policy.Status.Conditions, v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, policy.Generation)
	})
	w.settle()
	policy := get(w, &v1alpha1.ClusterPolicy{}, "", v1alpha1.ClusterPolicyName)
	if r := policy.Status.Rollout; r == nil || r.Stage != v1alpha1.RolloutPaused || r.Reason == "" || r.Failed != 2 {
		t.Errorf("the rollout is %+v", r)
	}
	untouched := 0
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		if !slicesContain(w.steps(name), "Upgrading") {
			untouched++
		}
	}
	if untouched != 2 {
		t.Errorf("%d nodes were left alone, want 2\n%s", untouched, w.report())
	}
}

// TestA10NotAvailable leaves nodes alone that are cordoned or not Ready; a cordoned one stays cordoned.
func TestA10NotAvailable(t *testing.T) {
	w := installed(t, machine{name: "cordoned"}, machine{name: "gone"}, machine{name: "good"})
	w.edit(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cordoned"}}, func(o client.Object) { o.(*corev1.Node).Spec.Unschedulable = true })
	w.nodeStatus("gone", func(s *corev1.NodeStatus) { s.Conditions[0].Status = corev1.ConditionUnknown })
	w.settle() // the installer watches nodes and policies apart: it must not see the edit first
	w.policy(func(s *v1alpha1.ClusterPolicySpec) {
		s.Driver.Version, s.Upgrade.MaxUnavailable = "580.2", new(intstr.FromInt32(3))
	})
	w.until("the good one has the driver", func() string {
		if w.images()["good"] != "580.2-debian12" {
			return "it has not"
		}
		return ""
	})
	w.untilPhase(v1alpha1.PhaseReady, "good")
	w.settle()
	if diff := cmp.Diff(map[string]string{"good": "580.2-debian12", "cordoned": "580.1-debian12", "gone": "580.1-debian12"}, w.images()); diff != "" {
		t.Error(diff)
	}
	if node := get(w, &corev1.Node{}, "", "cordoned"); !node.Spec.Unschedulable {
		t.Error("the node is not cordoned any more")
	}
}

// TestA11BudgetBlocks: the node's message names the pod and the budget, nothing is unloaded, and the node is back in service.
func TestA11BudgetBlocks(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	user := w.user("training", "n1")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: foreign, Name: "never"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "training"}},
		},
	}
	w.must(w.admin.Create(t.Context(), budget))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	w.must(w.admin.Status().Update(t.Context(), budget))
	w.policy(version("580.2"))
	w.until("the message names the budget", func() string {
		if s := w.gpunode("n1").Status; !strings.Contains(s.Message, budget.Name) {
			return fmt.Sprintf("message %q", s.Message)
		}
		return ""
	})
	w.policy(func(s *v1alpha1.ClusterPolicySpec) { s.Upgrade.Drain.Timeout.Duration = second })
	w.untilPhase(v1alpha1.PhaseBlocked, "n1")
	if s := w.gpunode("n1").Status; !strings.Contains(s.Message, "default/training") || !strings.Contains(s.Message, "never") {
		t.Errorf("the message is %q", s.Message)
	}
	if !w.exists(user) || w.images()["n1"] != "580.1-debian12" || slices.Contains(w.steps("n1"), "Upgrading/StopAgent") {
		t.Errorf("the pod stayed: %v; driver %s; way %v", w.exists(user), w.images()["n1"], w.steps("n1"))
	}
	w.until("the node is back in service", func() string {
		if rule := w.rule("n1"); rule || w.gpunode("n1").Spec.Maintenance != nil {
			return "its GPUs are still out of service"
		}
		return ""
	})
}

// rule is tainted for the test.
func (w *world) rule(node string) bool {
	w.Helper()
	tainted, err := w.tainted(w.Context(), node)
	w.must(err)
	return tainted
}

// tainted reports whether the GPUs of a node are tainted.
func (s *simulator) tainted(ctx context.Context, node string) (bool, error) {
	err := s.admin.Get(ctx, client.ObjectKey{Name: "tessera-maintenance-" + node}, &resourceapi.DeviceTaintRule{})
	return err == nil, client.IgnoreNotFound(err)
}

// TestA13UserEvictedFirst: a pod with a claim in a namespace of users leaves before the agent stops, one without GPUs stays.
func TestA13UserEvictedFirst(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	holder := w.user("training", "n1")
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: foreign, Name: "web"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	w.must(w.admin.Create(t.Context(), other))
	w.policy(version("580.2"))
	w.until("the node has the driver", func() string {
		if w.images()["n1"] != "580.2-debian12" {
			return "it has not"
		}
		return ""
	})
	w.untilPhase(v1alpha1.PhaseReady, "n1")
	if w.exists(holder) || !w.exists(other) {
		t.Errorf("the holder stayed: %v; the other stayed: %v", w.exists(holder), w.exists(other))
	}
	w.mutex.Lock()
	left := w.preparedAtStop["n1"]
	w.mutex.Unlock()
	if left != 0 {
		t.Errorf("%d claims were prepared when the agent stopped", left)
	}
	way := w.way("n1")
	if diff := cmp.Diff(wave, way[len(way)-min(len(wave), len(way)):]); diff != "" {
		t.Error(diff)
	}
	if node := get(w, &corev1.Node{}, "", "n1"); node.Spec.Unschedulable {
		t.Error("the node was cordoned")
	}
}

// TestA14Reboot with prepared claims ends in no deadlock: driver, agent and validation start again and no pod is evicted.
func TestA14Reboot(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	user := w.user("training", "n1")
	w.configure(func(s *simulator) {
		m := s.machines["n1"]
		m.boot++
		s.machines["n1"] = m
		s.driverFaults["n1 "] = driverHangs
	})
	w.nodeStatus("n1", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-n1-1" })
	w.until("the node is not ready", func() string {
		if w.gpunode("n1").Status.Phase == v1alpha1.PhaseReady {
			return "it does not"
		}
		return ""
	})
	w.configure(func(s *simulator) { clear(s.driverFaults) })
	w.untilPhase(v1alpha1.PhaseReady, "n1")
	if v := w.gpunode("n1").Status.Validated; v == nil || v.BootID != "boot-n1-1" {
		t.Errorf("validated is %v", v)
	}
	if !w.exists(user) {
		t.Error("the user's pod was evicted")
	}
}

// TestA3NodesOfANewKernelDoNotQueue: six nodes with precompiled drivers boot into another kernel. All of them get its driver at once, also where
// upgrades are not automatic, and their pods stay. The case is that of NVIDIA/gpu-operator#1215 and #1220.
func TestA3NodesOfANewKernelDoNotQueue(t *testing.T) {
	w := newWorld(t)
	w.policy(func(s *v1alpha1.ClusterPolicySpec) {
		s.Driver.UsePrecompiled, s.Driver.Version, s.Upgrade.Auto = true, "580", new(false)
	})
	names := []string{"n1", "n2", "n3", "n4", "n5", "n6"}
	for _, name := range names {
		w.join(machine{name: name})
	}
	w.start()
	w.untilPhase(v1alpha1.PhaseReady, names...)
	user := w.user("training", "n1")
	for _, name := range names {
		w.configure(func(s *simulator) {
			m := s.machines[name]
			m.boot, m.kernel = 1, "6.9.0"
			s.machines[name] = m
		})
		w.nodeStatus(name, func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-" + name + "-1" })
	}
	w.until("all nodes have the driver of the kernel", func() string {
		for name, image := range w.images() {
			if image != "580-6.9.0-debian12" {
				return name + " has " + image
			}
		}
		return ""
	})
	w.untilPhase(v1alpha1.PhaseReady, names...)
	if !w.exists(user) {
		t.Error("the user's pod was evicted")
	}
}

// TestA12DriverPodReplacedUnderLoad: a driver's pod whose image reloads the modules cannot start while a pod uses the GPUs. The pod stays until the policy
// permits a drain; then it is evicted, and the driver starts. The case is that of NVIDIA/gpu-operator#2166 and #83.
func TestA12DriverPodReplacedUnderLoad(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	w.policy(func(s *v1alpha1.ClusterPolicySpec) { s.Upgrade.Auto = new(false) })
	user := w.user("training", "n1")
	w.settle() // the simulator has the claim
	w.configure(func(s *simulator) { s.reloadsDriver = true })
	w.must(w.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(home), client.MatchingLabels{"app.kubernetes.io/name": "tessera-driver"}))
	w.until("the node reports it", func() string {
		if s := w.gpunode("n1").Status; s.Phase != v1alpha1.PhaseFailed || s.Reason != "DriverInUse" || !strings.Contains(s.Message, "training") {
			return fmt.Sprintf("it is %s (%s: %s)", s.Phase, s.Reason, s.Message)
		}
		return ""
	})
	w.settle()
	if !w.exists(user) {
		t.Fatal("the user's pod was evicted while upgrades are not automatic")
	}
	w.policy(func(s *v1alpha1.ClusterPolicySpec) { s.Upgrade.Auto = nil })
	w.untilPhase(v1alpha1.PhaseReady, "n1")
	if way := w.way("n1"); w.exists(user) || !slicesContain(way, "Upgrading/Drain") {
		t.Errorf("the driver started without a drain: %v", way)
	}
}

// TestA19OverlappingSelectors block the nodes that both choose; both drivers report the conflict, and it ends when one is deleted.
func TestA19OverlappingSelectors(t *testing.T) {
	w := installed(t, machine{name: "n1", labels: map[string]string{"a": "1", "b": "1"}}, machine{name: "n2", labels: map[string]string{"a": "1"}})
	for _, label := range []string{"a", "b"} {
		w.must(w.admin.Create(t.Context(), &v1alpha1.NVIDIADriver{
			ObjectMeta: metav1.ObjectMeta{Name: label},
			Spec: v1alpha1.NVIDIADriverSpec{
				DriverSpec:   v1alpha1.DriverSpec{Version: "580.1"},
				NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: "1"}},
			},
		}))
	}
	w.untilPhase(v1alpha1.PhaseBlocked, "n1")
	for _, name := range []string{"a", "b"} {
		w.until("driver "+name+" reports it", func() string {
			driver := &v1alpha1.NVIDIADriver{}
			w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: name}, driver))
			if !slices.Equal(driver.Status.Conflicts, []string{"n1"}) {
				return strings.Join(driver.Status.Conflicts, ", ")
			}
			return missingCondition(driver.Status.Conditions, v1alpha1.ConditionDegraded, metav1.ConditionTrue, driver.Generation)
		})
	}
	w.untilPhase(v1alpha1.PhaseReady, "n2")
	if slicesContain(w.steps("n1"), "Upgrading") || slicesContain(w.steps("n2"), "Upgrading") {
		t.Errorf("nodes moved: %v, %v", w.steps("n1"), w.steps("n2"))
	}
	w.must(w.admin.Delete(t.Context(), &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "b"}}))
	w.untilPhase(v1alpha1.PhaseReady, "n1", "n2")
	w.untilReady()
}

// TestA25ReadyDoesNotFlap: an upgrade of three nodes takes Ready away once and gives it back once, for the generation that was edited.
func TestA25ReadyDoesNotFlap(t *testing.T) {
	w := installed(t, machine{name: "n1"}, machine{name: "n2"}, machine{name: "n3"})
	before := w.verdicts(1)
	w.policy(version("580.2"))
	w.untilReady()
	w.settle()
	if diff := cmp.Diff([]string{"False", "True"}, w.verdicts(len(before) + 2)[len(before):]); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		count := 0
		for _, step := range w.way(name) {
			if step == "Upgrading/Taint" {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%s was upgraded %d times", name, count)
		}
	}
}
