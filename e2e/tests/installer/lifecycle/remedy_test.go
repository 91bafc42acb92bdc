package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// ward is a cluster in service, of nodes with two GPUs each.
func ward(t *testing.T, nodes ...string) *world {
	t.Helper()
	var machines []machine
	for _, name := range nodes {
		machines = append(machines, machine{name: name, gpus: 2})
	}
	w := installed(t, machines...)
	w.publish(nodes...)
	t.Cleanup(w.nothingWrong)
	return w
}

// TestSuggestReportsOnly: the status has the fault, the planned actions and the affected pod; no pod is disturbed, and while nothing changes the installer
// makes no request.
func TestSuggestReportsOnly(t *testing.T) {
	w := ward(t, "n1")
	user, neighbour := w.holder("training", "n1", 0), w.holder("neighbour", "n1", 1)
	fault := w.injectGPUFault("n1", 0)
	w.untilStep(fault, v1alpha1.RemediationStepSuggested, "")
	w.until("the status has the fault and the affected pod", func() string { // watches of claims and nodes: the fault may arrive before the GPU's holder
		if message := w.remedyOf(fault).Message; !strings.Contains(message, "XID 95") || !strings.Contains(message, "default/training") {
			return fmt.Sprintf("message %q", message)
		}
		return ""
	})
	w.settle()
	if message := w.remedyOf(fault).Message; strings.Contains(message, "neighbour") {
		t.Errorf("message %q", message)
	}
	from := w.requests.count()
	for i := range 5 {
		w.label("n1", map[string]string{"other": fmt.Sprint(i)})
		w.nodeStatus("n1", func(s *corev1.NodeStatus) {
			s.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(time.Duration(i) * second))
		})
	}
	other := w.holder("comes-and-goes", "n1", 1)
	w.must(w.admin.Delete(t.Context(), other, client.GracePeriodSeconds(0)))
	w.settle()
	for _, r := range w.requests.since(from) {
		t.Errorf("%s %s", r.method, r.path)
	}
	g := w.gpunode("n1")
	if !w.exists(user) || !w.exists(neighbour) || len(g.Spec.Remediations)+len(g.Status.History) > 0 {
		t.Errorf("it did something: orders %+v, history %+v", g.Spec.Remediations, g.Status.History)
	}
	if !meta.IsStatusConditionFalse(g.Status.Conditions, v1alpha1.ConditionGPUsHealthy) || g.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("phase %s, conditions %+v", g.Status.Phase, g.Status.Conditions)
	}
}

// TestActBringsAGPUBack: its pods leave, those of the other GPU stay; it is reset while no process has it open, validated by a claim for it alone, and
// returned to service.
func TestActBringsAGPUBack(t *testing.T) {
	w := ward(t, "n1")
	user, neighbour := w.holder("training", "n1", 0), w.holder("neighbour", "n1", 1)
	fault := w.injectGPUFault("n1", 0)
	w.untilStep(fault, v1alpha1.RemediationStepSuggested, "")
	w.policy(act)
	record := w.untilEnded("n1", 1)[0]
	if record.Outcome != v1alpha1.OutcomeRecovered || record.GPU != fault.Name() || record.UUID != fault.UUID || !slices.Equal(record.Faults, []string{"XID 95"}) || record.Attempts != 1 {
		t.Errorf("the record is %+v", record)
	}
	if w.exists(user) || !w.exists(neighbour) {
		t.Errorf("the pod of the GPU stayed: %v, that of the other one: %v", w.exists(user), w.exists(neighbour))
	}
	w.until("all is well again", func() string {
		g := w.gpunode("n1")
		if !meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionGPUsHealthy) || len(g.Status.Remediations) > 0 || g.Status.Phase != v1alpha1.PhaseReady {
			return fmt.Sprintf("%s, %+v, %+v", g.Status.Phase, g.Status.Conditions, g.Status.Remediations)
		}
		pods := &corev1.PodList{}
		w.must(w.admin.List(t.Context(), pods, client.InNamespace(home)))
		names := map[string]bool{}
		for _, pod := range pods.Items {
			names[pod.Labels["app.kubernetes.io/name"]] = true
		}
		if !names["tessera-dcgm-exporter"] || names["tessera-validation"] {
			return fmt.Sprintf("pods are %v", names)
		}
		return ""
	})
	w.settle()
	const want = "RemediationSuggested RemediationStarted GPUDrained GPUReset GPURecovered"
	w.until("there is an event for every step", func() string {
		if node, gpunode := w.reasonsOn("Node"), w.reasonsOn("GPUNode"); node != want || gpunode != want {
			return fmt.Sprintf("the Node's %q, the GPUNode's %q", node, gpunode)
		}
		return ""
	})
	w.until("the neighbour's GPU was never proven", func() string {
		if w.steps("n1")[len(w.steps("n1"))-1] != "Ready" {
			return fmt.Sprint(w.steps("n1"))
		}
		return ""
	})
}

// TestTwoFaultedGPUsAndABudgetOfOne are remediated one after the other, also on two nodes.
func TestTwoFaultedGPUsAndABudgetOfOne(t *testing.T) {
	w := ward(t, "n1", "n2")
	w.policy(act)
	w.configure(func(s *simulator) { s.maxHeldGPUs = 0 })
	w.injectGPUFault("n1", 0)
	w.injectGPUFault("n1", 1)
	w.injectGPUFault("n2", 0)
	for node, records := range map[string]int{"n1": 2, "n2": 1} {
		for _, record := range w.untilEnded(node, records) {
			if record.Outcome != v1alpha1.OutcomeRecovered {
				t.Errorf("%s: %+v", node, record)
			}
		}
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.maxHeldGPUs != 1 {
		t.Errorf("%d GPUs were out of service at a time, want 1", w.maxHeldGPUs)
	}
}

// disrupt forbids evictions of a pod.
func (w *world) disrupt(app string) *policyv1.PodDisruptionBudget {
	w.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: foreign, Name: "never"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	w.must(w.admin.Create(w.Context(), budget))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	w.must(w.admin.Status().Update(w.Context(), budget))
	return budget
}

// TestPodThatMayNotBeEvicted: the GPU is given back as it is, people read by which pod and which budget, and later it goes through.
func TestPodThatMayNotBeEvicted(t *testing.T) {
	w := ward(t, "n1")
	user := w.holder("training", "n1", 0)
	budget := w.disrupt("training")
	w.policy(act)
	fault := w.injectGPUFault("n1", 0)
	w.until("the message names the budget", func() string {
		if status := w.remedyOf(fault); !strings.Contains(status.Message, budget.Name) {
			return fmt.Sprintf("message %q", status.Message)
		}
		return ""
	})
	drain := func(timeout *metav1.Duration) {
		w.policy(func(s *v1alpha1.ClusterPolicySpec) { s.Remediation.Drain.Timeout = timeout })
	}
	drain(&metav1.Duration{Duration: second})
	record := w.untilEnded("n1", 1)[0]
	if record.Outcome != v1alpha1.OutcomeFailed || !strings.Contains(record.Message, "default/training") || !strings.Contains(record.Message, "never") {
		t.Errorf("the record is %+v", record)
	}
	status := w.untilStep(fault, v1alpha1.RemediationStepWaiting, remediation.ReasonBackoff)
	if !strings.Contains(status.Message, "default/training") || !w.exists(user) {
		t.Errorf("message %q; the pod stayed: %v", status.Message, w.exists(user))
	}
	drain(nil)
	w.must(w.admin.Delete(t.Context(), budget))
	// Time passes.
	w.edit(&v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, func(o client.Object) {
		o.(*v1alpha1.GPUNode).Status.History[0].Ended = metav1.NewTime(time.Now().Add(-time.Hour))
	}, "status")
	if record := w.untilEnded("n1", 2)[0]; record.Outcome != v1alpha1.OutcomeRecovered || w.exists(user) {
		t.Errorf("the record is %+v; the pod stayed: %v", record, w.exists(user))
	}
}

// TestPause by one annotation, on the GPUNode or on the policy: nothing begins, what has not reset its GPU gives it back, and it goes on when the annotation goes.
func TestPause(t *testing.T) {
	objects := map[string]func() client.Object{
		"GPUNode": func() client.Object { return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}} },
		"ClusterPolicy": func() client.Object {
			return &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}
		},
	}
	for name, object := range objects {
		t.Run(name, func(t *testing.T) {
			w := ward(t, "n1")
			pause := func(value string) {
				w.edit(object(), func(o client.Object) {
					o.SetAnnotations(map[string]string{v1alpha1.AnnotationPauseRemediation: value})
				})
			}
			user := w.holder("training", "n1", 0)
			budget := w.disrupt("training")
			pause("true")
			w.policy(act)
			fault := w.injectGPUFault("n1", 0)
			if status := w.untilStep(fault, v1alpha1.RemediationStepWaiting, remediation.ReasonPaused); !strings.Contains(status.Message, name) {
				t.Errorf("message %q", status.Message)
			}
			w.settle()
			pause("false")
			w.untilStep(fault, v1alpha1.RemediationStepDrain, "")
			pause("true")
			if record := w.untilEnded("n1", 1)[0]; record.Outcome != v1alpha1.OutcomeStopped {
				t.Errorf("the record is %+v", record)
			}
			if !w.exists(user) {
				t.Error("the pod is gone")
			}
			w.must(w.admin.Delete(t.Context(), budget))
			pause("false")
			if record := w.untilEnded("n1", 2)[0]; record.Outcome != v1alpha1.OutcomeRecovered || w.exists(user) {
				t.Errorf("the record is %+v; the pod stayed: %v", record, w.exists(user))
			}
		})
	}
}

// TestResetsFail: after two a reboot is requested, in the status and by the label for tools that reboot nodes; another boot ends it.
func TestResetsFail(t *testing.T) {
	w := ward(t, "n1")
	w.policy(act)
	fault := w.injectGPUFault("n1", 0, func(f *gpuFault) { f.failures, f.boot = 99, machine{name: "n1"}.bootID() })
	status := w.untilStep(fault, v1alpha1.RemediationStepRebootRequested, "")
	if status.Attempts != 2 {
		t.Errorf("it was tried %d times", status.Attempts)
	}
	requested := func() string { return get(w, &corev1.Node{}, "", "n1").Labels[v1alpha1.LabelRebootRequired] }
	w.until("the Node is labelled", func() string {
		if requested() != "true" || !meta.IsStatusConditionTrue(w.gpunode("n1").Status.Conditions, v1alpha1.ConditionRebootRequired) {
			return "it does not"
		}
		return ""
	})
	w.settle()
	if held := w.gpunode("n1").Spec.Remediations; len(held) != 1 || held[0].Step != v1alpha1.OrderHold {
		t.Errorf("orders are %+v, want the GPU held", held)
	}
	m := machine{name: "n1", os: "debian12", kernel: "6.1.0", gpus: 2, boot: 1}
	w.configure(func(s *simulator) { s.machines["n1"] = m })
	w.nodeStatus("n1", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = m.bootID() })
	if record := w.untilEnded("n1", 1)[0]; record.Outcome != v1alpha1.OutcomeRecovered || record.BootID == "" {
		t.Errorf("the record is %+v", record)
	}
	w.until("no reboot is requested any more", func() string { return requested() })
	w.untilPhase(v1alpha1.PhaseReady, "n1")
}

// TestRemedyKilledAtEveryStep kills the installer after each of its writes: the story ends the same, with one eviction and one record.
func TestRemedyKilledAtEveryStep(t *testing.T) {
	w := ward(t, "n1")
	user := w.holder("training", "n1", 0)
	w.stop()
	w.policy(act)
	w.injectGPUFault("n1", 0)
	evictions := w.killedAtEveryWrite(func() bool {
		g := w.gpunode("n1")
		return len(g.Status.History) > 0 && len(g.Spec.Remediations) == 0 && len(g.Status.Remediations) == 0 && g.Status.Phase == v1alpha1.PhaseReady
	})
	record := w.untilEnded("n1", 1)[0]
	if record.Outcome != v1alpha1.OutcomeRecovered || record.Attempts != 1 || evictions != 1 || w.exists(user) {
		t.Errorf("%d evictions, the pod stayed: %v; the record is %+v", evictions, w.exists(user), record)
	}
}
