package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/installer/render"
)

// cleanup removes the installer as an administrator does, with a long timeout, and returns the output.
func (w *world) cleanup(flags ...string) (string, error) {
	return w.command(w.Context(), removal(flags...)...)
}

// assignsPods reports whether the policy that assigns pods to the scheduler is bound.
func (w *world) assignsPods() bool {
	w.Helper()
	err := w.admin.Get(w.Context(), client.ObjectKey{Name: render.SchedulerAssignment}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{})
	w.must(client.IgnoreNotFound(err))
	return err == nil
}

// removal are the arguments of a cleanup.
func removal(flags ...string) []string {
	return append([]string{"cleanup", "--namespace=" + home, "--timeout=" + harness.Patience.String()}, flags...)
}

// TestA15Uninstall refuses while pods of users hold GPUs, changes nothing then and names them; allowed to drain, it goes in order and leaves
// nothing behind.
func TestA15Uninstall(t *testing.T) {
	w := installed(t, machine{name: "n1"}, machine{name: "n2"})
	if !w.assignsPods() {
		t.Error("new pods are not assigned to the scheduler, which is available")
	}
	user := w.user("training", "n1")
	w.stop()
	before := w.podUIDs("tessera-driver", "tessera-node")
	output, err := w.cleanup()
	if err == nil || !strings.Contains(output, "default/training") || !strings.Contains(output, "--drain") {
		t.Fatalf("%v: %s", err, output)
	}
	if !w.exists(user) || !maps.Equal(before, w.podUIDs("tessera-driver", "tessera-node")) || w.gpunode("n1").Spec.Maintenance != nil {
		t.Error("something was touched")
	}
	if output, err := w.cleanup("--drain"); err != nil {
		t.Fatalf("%v: %s\n%s", err, output, w.report())
	}
	if w.exists(user) {
		t.Error("the user's pod is still there")
	}
	if w.assignsPods() {
		t.Error("new pods are assigned to a scheduler that was removed")
	}
	w.mutex.Lock()
	left := w.preparedAtStop["n1"]
	w.mutex.Unlock()
	if left != 0 {
		t.Errorf("%d claims were prepared when the agent stopped", left)
	}
	for _, list := range []client.ObjectList{&appsv1.DaemonSetList{}, &appsv1.DeploymentList{}, &corev1.PodList{}, &corev1.ServiceList{}} {
		w.must(w.admin.List(t.Context(), list, client.InNamespace(home)))
		if n := count(list); n > 0 {
			t.Errorf("%d of %T are left", n, list)
		}
	}
	nodes := &v1alpha1.GPUNodeList{}
	w.must(w.admin.List(t.Context(), nodes))
	if len(nodes.Items) > 0 || w.rule("n1") {
		t.Errorf("%d GPUNodes are left, taint %v", len(nodes.Items), w.rule("n1"))
	}
	for key := range get(w, &corev1.Node{}, "", "n1").Labels {
		if strings.HasPrefix(key, "tessera.dev/") || strings.HasPrefix(key, "nvidia.com/") {
			t.Errorf("label %s is left", key)
		}
	}
}

// owned creates a pod of a user that is created again whenever it is gone, with a separate claim, and placed as long as the node's GPUs are in
// service.
func (w *world) owned(name, node string) {
	w.Helper()
	w.user(name, node)
	made := 0
	w.configure(func(s *simulator) {
		s.userController = func(ctx context.Context, now *snapshot) error {
			for _, pod := range now.pods.Items {
				if pod.Labels["app"] == name {
					return nil
				}
			}
			host := &corev1.Node{}
			if err := s.admin.Get(ctx, client.ObjectKey{Name: node}, host); err != nil {
				return err
			}
			if tainted, err := s.tainted(ctx, node); err != nil || tainted || host.Labels[v1alpha1.LabelMaintenance] != "" {
				return err // it is pending
			}
			made++
			_, err := s.makeUser(ctx, fmt.Sprintf("%s-%d", name, made), node, func(pod *corev1.Pod) { pod.Labels["app"] = name })
			return err
		}
	})
}

// deployment makes what the chart has the installer run by.
func (w *world) deployment(replicas int32) {
	w.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "tessera-installer"}
	w.must(w.admin.Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "tessera-installer"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}))
	w.Cleanup(func() {
		object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "tessera-installer"}}
		if err := w.admin.Delete(context.Background(), object); err != nil {
			w.Error(err)
		}
	})
}

// outOfService returns what is still out of service on a node.
func (w *world) outOfService(name string) string {
	w.Helper()
	switch {
	case w.rule(name):
		return "its GPUs are tainted"
	case w.gpunode(name).Spec.Maintenance != nil:
		return "its agent refuses"
	case get(w, &corev1.Node{}, "", name).Labels[v1alpha1.LabelMaintenance] != "":
		return "its label keeps pods off"
	}
	return ""
}

// TestA15PodsThatAreMadeAgain do not keep a removal from its end: their replacements stay pending.
func TestA15PodsThatAreMadeAgain(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	w.owned("service", "n1")
	w.stop()
	if output, err := w.cleanup("--drain"); err != nil {
		t.Fatalf("%v: %s\n%s", err, output, w.report())
	}
	w.mutex.Lock()
	left := w.preparedAtStop["n1"]
	w.mutex.Unlock()
	if left != 0 {
		t.Errorf("%d claims were prepared when the agent stopped", left)
	}
}

// stoppedCleanup runs a cleanup that drains, ends it as kubelet does after its first output, and returns the output and the error.
func (w *world) stoppedCleanup(once string) (string, error) {
	w.Helper()
	log := filepath.Join(w.TempDir(), "cleanup.log")
	process, err := harness.Start(log, exec.Command(w.program, append(removal("--drain"), "--kubeconfig="+w.Kubeconfig)...))
	w.must(err)
	defer process.Kill()
	output := func() string {
		text, err := os.ReadFile(log)
		w.must(err)
		return string(text)
	}
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	w.must(harness.Poll(ctx, func(context.Context) error {
		if text := output(); !strings.Contains(text, once) {
			return fmt.Errorf("nothing of %s in %q", once, text)
		}
		return nil
	}))
	err = process.Terminate()
	return output(), err
}

// TestA15RemovalThatFails names who stopped it, puts everything back into service, and can be run again to its end.
func TestA15RemovalThatFails(t *testing.T) {
	w := installed(t, machine{name: "n1"}, machine{name: "n2"})
	w.deployment(2)
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
	w.stop()
	output, err := w.stoppedCleanup(budget.Name)
	if err == nil || !strings.Contains(output, "default/training") || !strings.Contains(output, "never") || !strings.Contains(output, "back in service") {
		t.Fatalf("%v: %s", err, output)
	}
	for _, name := range []string{"n1", "n2"} {
		if out := w.outOfService(name); out != "" {
			t.Errorf("%s: %s", name, out)
		}
	}
	installer := get(w, &appsv1.Deployment{}, home, "tessera-installer")
	if *installer.Spec.Replicas != 2 || len(installer.Annotations) > 0 || !w.exists(user) {
		t.Errorf("replicas %d, annotations %v, the user's pod exists: %v", *installer.Spec.Replicas, installer.Annotations, w.exists(user))
	}
	w.must(w.admin.Delete(t.Context(), budget))
	if output, err := w.cleanup("--drain"); err != nil {
		t.Fatalf("%v: %s\n%s", err, output, w.report())
	}
	if output, err := w.cleanup(); err != nil {
		t.Errorf("when nothing is left: %v: %s", err, output)
	}
}

// TestA15DeadNode is named and not waited for.
func TestA15DeadNode(t *testing.T) {
	w := installed(t, machine{name: "n1"}, machine{name: "n2"})
	w.user("training", "n2")
	w.nodeStatus("n2", func(s *corev1.NodeStatus) { s.Conditions[0].Status = corev1.ConditionUnknown })
	w.stop()
	// No kubelet ends the containers there, since none receives the deletion.
	w.edit(get(w, &corev1.Pod{}, foreign, "training"), func(o client.Object) { o.SetFinalizers([]string{"example.com/dead"}) })
	defer w.edit(get(w, &corev1.Pod{}, foreign, "training"), func(o client.Object) { o.SetFinalizers(nil) })
	output, err := w.cleanup("--drain")
	if err != nil || strings.Count(output, "node n2 is not Ready") != 1 {
		t.Errorf("%v: %s", err, output)
	}
	if claim := get(w, &resourceapi.ResourceClaim{}, foreign, "training"); claim.Status.Allocation == nil {
		t.Error("the claim on the dead node was freed: the test tries nothing")
	}
}

func count(list client.ObjectList) int {
	switch l := list.(type) {
	case *appsv1.DaemonSetList:
		return len(l.Items)
	case *appsv1.DeploymentList:
		return len(l.Items)
	case *corev1.PodList:
		return len(l.Items)
	case *corev1.ServiceList:
		return len(l.Items)
	}
	return 0
}
