package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// images returns the images of the driver containers by node.
func (w *world) images() map[string]string {
	w.Helper()
	pods := &corev1.PodList{}
	w.must(w.admin.List(w.Context(), pods, client.InNamespace(home), client.MatchingLabels{"app.kubernetes.io/name": "tessera-driver"}))
	found := map[string]string{}
	for _, pod := range pods.Items {
		found[pod.Spec.NodeName] = strings.TrimPrefix(pod.Spec.Containers[0].Image, "registry.test/driver:")
	}
	return found
}

// sets names the DaemonSets of drivers.
func (w *world) sets() []appsv1.DaemonSet {
	w.Helper()
	list := &appsv1.DaemonSetList{}
	w.must(w.admin.List(w.Context(), list, client.InNamespace(home), client.MatchingLabels{"app.kubernetes.io/name": "tessera-driver"}))
	return list.Items
}

// installed gives a cluster whose nodes are Ready.
func installed(t *testing.T, machines ...machine) *world {
	t.Helper()
	w := newWorld(t)
	w.policy(func(*v1alpha1.ClusterPolicySpec) {})
	w.join(machines...)
	w.start()
	w.until("all nodes are counted", func() string {
		policy := &v1alpha1.ClusterPolicy{}
		if err := w.admin.Get(w.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
			return err.Error()
		}
		if int(policy.Status.Nodes.Total) != len(machines) {
			return "nodes are missing"
		}
		return ""
	})
	w.untilReady()
	return w
}

// TestA1BareNodeBecomesReady goes through the phases in order; conditions report what was validated, labels the GPUs.
func TestA1BareNodeBecomesReady(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	if diff := cmp.Diff([]string{"Preflight", "DriverInstalling", "ToolkitReady", "Validating", "Ready"}, w.way("n1")); diff != "" {
		t.Error(diff)
	}
	node := w.gpunode("n1")
	for _, kind := range []string{"DriverValidated", "ToolkitValidated", "AgentValidated", "WorkloadValidated", "Ready"} {
		if missing := missingCondition(node.Status.Conditions, kind, metav1.ConditionTrue, node.Generation); missing != "" {
			t.Error(missing)
		}
	}
	if node.Status.Since.IsZero() || node.Status.ObservedGeneration != node.Generation {
		t.Errorf("since %v, generation %d of %d", node.Status.Since, node.Status.ObservedGeneration, node.Generation)
	}
	want := map[string]string{
		"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "81920",
		"nvidia.com/gpu.family": "hopper", "nvidia.com/gpu.compute.major": "9", "nvidia.com/cuda.driver-version.full": "580.1", "nvidia.com/mig.capable": "false",
		"tessera.dev/ready": "true", "tessera.dev/agent": "default", "tessera.dev/maintenance": "",
	}
	w.until("the Node is labelled", func() string { // this follows phase Ready of the GPUNode
		labels := get(w, &corev1.Node{}, "", "n1").Labels
		for key, value := range want {
			if labels[key] != value {
				return fmt.Sprintf("label %s is %q, want %q", key, labels[key], value)
			}
		}
		return ""
	})
	pods := &corev1.PodList{}
	w.must(w.admin.List(t.Context(), pods, client.InNamespace(home), client.MatchingLabels{"app.kubernetes.io/name": "tessera-validation"}))
	if len(pods.Items) > 0 {
		t.Errorf("%d pods of the validation are left", len(pods.Items))
	}
}

// TestA1NotReadyWhenUnproven reports the output of the failed test, and recovers.
func TestA1NotReadyWhenUnproven(t *testing.T) {
	w := newWorld(t)
	w.policy(func(*v1alpha1.ClusterPolicySpec) {})
	w.configure(func(s *simulator) { s.failingValidations["n1"] = true })
	w.join(machine{name: "n1"})
	w.start()
	w.untilPhase(v1alpha1.PhaseFailed, "n1")
	if s := w.gpunode("n1").Status; !strings.Contains(s.Message, "Test FAILED") {
		t.Errorf("the message is %q", s.Message)
	}
	w.until("the policy reports it", func() string {
		policy := get(w, &v1alpha1.ClusterPolicy{}, "", v1alpha1.ClusterPolicyName)
		return missingCondition(policy.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, 1)
	})
}

// TestA2TwoOperatingSystems get an image each, independently of each other.
func TestA2TwoOperatingSystems(t *testing.T) {
	w := installed(t, machine{name: "deb", os: "debian12"}, machine{name: "ubu", os: "ubuntu24.04"})
	if diff := cmp.Diff(map[string]string{"deb": "580.1-debian12", "ubu": "580.1-ubuntu24.04"}, w.images()); diff != "" {
		t.Error(diff)
	}
	before := w.sets()
	w.join(machine{name: "ubu2", os: "ubuntu24.04"})
	w.untilPhase(v1alpha1.PhaseReady, "ubu2", "ubu", "deb")
	if diff := cmp.Diff(specs(before), specs(w.sets())); diff != "" {
		t.Errorf("a node that joins changed a driver:\n%s", diff)
	}
}

// specs are the specs of the DaemonSets, by name.
func specs(sets []appsv1.DaemonSet) map[string]string {
	all := map[string]string{}
	for _, set := range sets {
		all[set.Name] = set.ResourceVersion
		if len(set.ManagedFields) > 0 {
			all[set.Name] = set.Annotations["tessera.dev/hash"]
		}
	}
	return all
}

// TestA3TwoKernelsPrecompiled get a driver each; one without an image is Failed and names the image, the other is Ready.
func TestA3TwoKernelsPrecompiled(t *testing.T) {
	w := newWorld(t)
	w.policy(func(s *v1alpha1.ClusterPolicySpec) { s.Driver.UsePrecompiled = true; s.Driver.Version = "580" })
	w.configure(func(s *simulator) { s.driverFaults["* 580-6.9.0-debian12"] = driverImageMissing })
	w.join(machine{name: "old", kernel: "6.1.0"}, machine{name: "new", kernel: "6.9.0"})
	w.start()
	w.untilPhase(v1alpha1.PhaseReady, "old")
	w.untilPhase(v1alpha1.PhaseFailed, "new")
	for _, part := range []string{"580-6.9.0-debian12 cannot be pulled", "no precompiled driver for kernel 6.9.0", "usePrecompiled: false"} {
		if s := w.gpunode("new").Status; !strings.Contains(s.Message, part) {
			t.Errorf("the message lacks %q: %q", part, s.Message)
		}
	}
	// The image is pushed.
	w.configure(func(s *simulator) { clear(s.driverFaults) })
	w.untilPhase(v1alpha1.PhaseReady, "old", "new")
	w.untilReady()
}

// TestA4OptOut removes every operand, and brings them back.
func TestA4OptOut(t *testing.T) {
	w := installed(t, machine{name: "n1"}, machine{name: "n2"})
	w.label("n1", map[string]string{v1alpha1.LabelOperands: "false"})
	w.untilPhase(v1alpha1.PhaseAbsent, "n1")
	w.until("every operand has left", func() string {
		pods := &corev1.PodList{}
		w.must(w.admin.List(t.Context(), pods, client.InNamespace(home)))
		for _, pod := range pods.Items {
			if pod.Spec.NodeName == "n1" {
				return pod.Name + " is still there"
			}
		}
		return ""
	})
	w.until("no label is left", func() string {
		for key := range get(w, &corev1.Node{}, "", "n1").Labels {
			if strings.HasPrefix(key, "tessera.dev/") {
				return key + " is"
			}
		}
		return ""
	})
	w.label("n1", map[string]string{v1alpha1.LabelOperands: ""})
	w.untilPhase(v1alpha1.PhaseReady, "n1", "n2")
	if slicesContain(w.steps("n2"), "Upgrading") {
		t.Errorf("the other node moved: %v", w.steps("n2"))
	}
}

func slicesContain(list []string, prefix string) bool {
	for _, s := range list {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// TestA5HostDriver is kept: no driver pod; an old one is reported.
func TestA5HostDriver(t *testing.T) {
	w := newWorld(t)
	w.policy(func(*v1alpha1.ClusterPolicySpec) {})
	w.join(machine{name: "good", hostDriver: "570.10"}, machine{name: "stale", hostDriver: "470.1"})
	w.start()
	w.untilPhase(v1alpha1.PhaseReady, "good")
	w.untilPhase(v1alpha1.PhaseBlocked, "stale")
	if images := w.images(); len(images) > 0 {
		t.Errorf("driver containers run: %v", images)
	}
	if d := w.gpunode("good").Spec.Driver; d == nil || d.Source != v1alpha1.DriverHost || d.Version != "570.10" {
		t.Errorf("the driver is %v", d)
	}
	if s := w.gpunode("stale").Status; !strings.Contains(s.Message, "470.1") || !strings.Contains(s.Message, "535") {
		t.Errorf("the message is %q", s.Message)
	}
}

// TestA16FeatureLabelsLost restarts nothing.
func TestA16FeatureLabelsLost(t *testing.T) {
	pci := map[string]string{"feature.node.kubernetes.io/pci-10de.present": "true"}
	w := installed(t, machine{name: "n1", labels: pci})
	pods, sets := w.podUIDs("tessera-driver", "tessera-node"), specs(w.sets())
	w.label("n1", map[string]string{"feature.node.kubernetes.io/pci-10de.present": ""})
	w.settle()
	w.label("n1", pci)
	w.settle()
	if diff := cmp.Diff(pods, w.podUIDs("tessera-driver", "tessera-node")); diff != "" {
		t.Errorf("pods are others now:\n%s", diff)
	}
	if diff := cmp.Diff(sets, specs(w.sets())); diff != "" {
		t.Error(diff)
	}
	if s := w.gpunode("n1").Status; s.Phase != v1alpha1.PhaseReady {
		t.Errorf("the node is %s after %v", s.Phase, w.steps("n1"))
	}
}

// podUIDs are the pods of operands by name.
func (w *world) podUIDs(operands ...string) map[string]string {
	w.Helper()
	pods := &corev1.PodList{}
	w.must(w.admin.List(w.Context(), pods, client.InNamespace(home)))
	all := map[string]string{}
	for _, pod := range pods.Items {
		if slices.Contains(operands, pod.Labels["app.kubernetes.io/name"]) {
			all[pod.Name] = string(pod.UID)
		}
	}
	return all
}
