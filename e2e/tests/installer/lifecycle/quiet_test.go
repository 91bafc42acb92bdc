package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller"
)

const second = time.Second

// looks is the number of consecutive checks without activity before the cluster counts as settled, and pause is the time between two checks: while the
// machine is suspended there is no check.
const (
	looks = 30
	pause = 50 * time.Millisecond
)

// settle waits until the installer has made no request and the simulator no pass for a while.
func (w *world) settle() {
	w.Helper()
	w.rest(nil)
}

// rest is settle, unless something else happens first.
func (w *world) rest(unless <-chan struct{}) {
	w.Helper()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	over := time.After(limit)
	for calm, last := 0, -1; calm < looks; calm++ {
		if now, busy := w.stirs(); busy || now != last {
			calm, last = 0, now
		}
		select {
		case <-tick.C:
		case <-unless:
			return
		case <-w.Context().Done():
			return
		case <-over:
			made := w.requests.since(0)
			w.Fatalf("it does not come to rest; the last requests are %v", made[max(0, len(made)-looks):])
		}
	}
}

// stirs counts the installer's requests and the passes of the simulator; busy is whether either is at work.
func (w *world) stirs() (n int, busy bool) {
	made, open := w.requests.state()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return made + w.passesBegun, open > 0 || w.passesBegun > w.passesDone
}

// TestA23SteadyState: heartbeats, users that come and go, statuses of pods: the installer makes no request.
func TestA23SteadyState(t *testing.T) {
	w := installed(t, machine{name: "n1"}, machine{name: "n2"})
	w.settle()
	from := w.requests.count()
	for i := range 10 {
		w.nodeStatus("n1", func(s *corev1.NodeStatus) {
			s.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(time.Duration(i) * second))
		})
		user := w.user(fmt.Sprintf("user-%d", i), "n2")
		w.must(w.admin.Delete(t.Context(), user, client.GracePeriodSeconds(0)))
		w.must(w.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: fmt.Sprintf("other-%d", i)}}))
		w.label("n1", map[string]string{"other": fmt.Sprint(i)})
	}
	w.settle()
	for _, r := range w.requests.since(from) {
		t.Errorf("%s %s", r.method, r.path)
	}
}

// TestA24BrokenNode: a driver that always fails costs a bounded number of requests, and none when nothing changes.
func TestA24BrokenNode(t *testing.T) {
	w := newWorld(t)
	w.policy(func(*v1alpha1.ClusterPolicySpec) {})
	w.configure(func(s *simulator) { s.driverFaults["n1 "] = driverCrashes })
	w.join(machine{name: "n1"}, machine{name: "n2"})
	w.start()
	w.untilPhase(v1alpha1.PhaseFailed, "n1")
	w.untilPhase(v1alpha1.PhaseReady, "n2")
	w.settle()
	from := w.requests.count()
	// Kubelet goes to and fro: the container runs, fails, waits, is pulled again.
	states := []corev1.ContainerState{
		{Running: &corev1.ContainerStateRunning{}}, {Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "modprobe: ERROR: could not insert 'nvidia': No such device"}},
		{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
	}
	for i := range 30 {
		w.configure(func(s *simulator) { s.crashState = &states[i%len(states)] })
		w.until("kubelet has reported it", func() string { return w.crashed(states[i%len(states)]) })
	}
	w.settle()
	if made := w.requests.since(from); len(made) > 0 {
		t.Errorf("%d requests, %d of them writes: %v", len(made), len(writes(made)), made)
	}
}

// crashed returns whether the pod of the broken driver is in a state yet.
func (w *world) crashed(state corev1.ContainerState) string {
	pods := &corev1.PodList{}
	w.must(w.admin.List(w.Context(), pods, client.InNamespace(home), client.MatchingLabels{"app.kubernetes.io/name": "tessera-driver"}))
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "n1" && pod.Status.ContainerStatuses[0].State.String() == state.String() {
			return ""
		}
	}
	return "it has not"
}

// TestA21OtherSchema: CRDs of another release are reported in the status, and nothing is removed.
func TestA21OtherSchema(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	w.stop()
	other := schemas(w)
	for name := range other {
		other[name] = "of-another-release"
	}
	w.start(func(c *controller.Config) { c.Schemas = other })
	// Objects that are no longer needed would be removed.
	w.policy(func(s *v1alpha1.ClusterPolicySpec) { s.DCGMExporter.Enabled = new(false) })
	w.until("the policy reports it", func() string {
		policy := &v1alpha1.ClusterPolicy{}
		w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy))
		for _, c := range policy.Status.Conditions {
			if c.Type == v1alpha1.ConditionDegraded && c.Reason == "SchemaMismatch" && c.ObservedGeneration == policy.Generation &&
				strings.Contains(c.Message, "tessera.dev is not that of this release") {
				return ""
			}
		}
		return fmt.Sprint(policy.Status.Conditions)
	})
	w.settle()
	get(w, &corev1.Service{}, home, "tessera-dcgm-exporter")
	w.stop()
	w.start()
	w.untilReady()
	w.until("the exporter is removed", func() string {
		if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: home, Name: "tessera-dcgm-exporter"}, &corev1.Service{}); err == nil {
			return "it is not"
		}
		return ""
	})
}

// TestObjectsAreRepaired: what others change in the installer's objects is put back, once; what they add is left.
func TestObjectsAreRepaired(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	service := get(w, &corev1.Service{}, home, "tessera-dcgm-exporter")
	port := service.Spec.Ports[0].Port
	w.edit(service, func(o client.Object) {
		s := o.(*corev1.Service)
		s.Spec.Ports[0].Port = 1
		s.Annotations["other"] = "else"
	})
	w.until("the port is put back", func() string {
		if now := get(w, &corev1.Service{}, home, "tessera-dcgm-exporter"); now.Spec.Ports[0].Port != port || now.Annotations["other"] != "else" {
			return fmt.Sprint(now.Spec.Ports, now.Annotations)
		}
		return ""
	})
}
