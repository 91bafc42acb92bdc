package nodestate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// A complete pool is read once for each agent and boot; one that lacks what is needed is read again.
func TestPoolsAreReadOncePerAgent(t *testing.T) {
	c := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n")})
	pools := nodestate.NewPools(c)
	o, _, err := nodestate.Read(t.Context(), action.Cluster{Client: c, Namespace: controllertest.Namespace}, controllertest.Policies{}.Catalog(), c.GPUNode("n"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(suffices bool, lists int) {
		t.Helper()
		pool, err := pools.Published(t.Context(), o, func(wire.Reading) bool { return suffices })
		if err != nil || len(pool.GPUs) != 2 || c.SliceLists != lists {
			t.Errorf("%d GPUs after %d lists, want %d, error %v", len(pool.GPUs), c.SliceLists, lists, err)
		}
	}
	read(true, 1)
	read(true, 1)
	read(false, 2)
	o.Status.Agent.PodUID = "another"
	read(true, 3)
	pools.Remove("n")
	read(true, 4)
	o.Status.Agent = nil
	read(true, 5)
	read(true, 6)
	o.Assignment.DRADriver = "other.example.com"
	if pool, err := pools.Published(t.Context(), o, func(wire.Reading) bool { return true }); err != nil || len(pool.GPUs) > 0 {
		t.Errorf("of another driver: %d GPUs, error %v", len(pool.GPUs), err)
	}
}

// Faults count when they are Critical or Fatal and of the present boot.
func TestSevereFaults(t *testing.T) {
	agent := &v1alpha1.AgentStatus{BootID: "b", Faults: []v1alpha1.GPUFault{
		{GPU: "w", Severity: "Warning"}, {GPU: "c", Severity: "Critical", Signal: "ecc"}, {GPU: "f", Severity: "Fatal", XID: 79},
	}}
	got := nodestate.SevereFaults(agent, "b")
	if len(got) != 2 || nodestate.FaultTitle(got[0]) != "ecc" || nodestate.FaultTitle(got[1]) != "XID 79" || len(agent.Faults) != 3 {
		t.Errorf("got %+v of %+v", got, agent.Faults)
	}
	if got := append(nodestate.SevereFaults(agent, "another"), nodestate.SevereFaults(nil, "b")...); len(got) > 0 {
		t.Errorf("of another boot: %+v", got)
	}
}

// Of several pods of an operand the one that is furthest counts, of equal ones the newer.
func TestOperandPod(t *testing.T) {
	pod := func(name string, created int64, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(created, 0), Labels: map[string]string{render.LabelName: "o"}}}
		change(&p)
		return p
	}
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: p.CreationTimestamp}}
	}
	state := func(s corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = s } }
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	for name, test := range map[string]struct {
		pods []corev1.Pod
		want string
		is   phase.PodState
	}{
		"none":               {nil, "", phase.PodAbsent},
		"of another operand": {[]corev1.Pod{pod("a", 1, func(p *corev1.Pod) { p.Labels = nil })}, "", phase.PodAbsent},
		"ready before new":   {[]corev1.Pod{pod("a", 1, ready), pod("b", 2, state(corev1.PodPending))}, "a", phase.PodReady},
		"two ready":          {[]corev1.Pod{pod("a", 1, ready), pod("b", 2, ready)}, "b", phase.PodReady},
		"one leaves":         {[]corev1.Pod{pod("a", 1, leaving), pod("b", 2, state(corev1.PodFailed))}, "b", phase.PodFailed},
		"done":               {[]corev1.Pod{pod("a", 1, state(corev1.PodSucceeded))}, "a", phase.PodSucceeded},
	} {
		if got := nodestate.OperandPod(test.pods, "o"); got.Name != test.want || got.State != test.is {
			t.Errorf("%s: got %s %s", name, got.Name, got.State)
		}
	}
	waiting := corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "m"}}}}
	if got := nodestate.ObservePod(&waiting); got.Reason != "Unschedulable" || got.Message != "m" {
		t.Errorf("a pod that is not scheduled: %+v", got)
	}
	broken := corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Ready: true}, {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "m"}}},
	}}}
	if got := nodestate.ObservePod(&broken); got.State != phase.PodFailed || got.Reason != "CreateContainerError" {
		t.Errorf("a container that cannot be created: %+v", got)
	}
	later := time.Now().Truncate(time.Second)
	broken.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(later)}}
	if got := nodestate.ObservePod(&broken); !got.Since.Equal(later) {
		t.Errorf("not ready since %v, want %v", got.Since, later)
	}
}

type failing struct{ error }

func (f failing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return f.error
}

func (f failing) List(context.Context, client.ObjectList, ...client.ListOption) error { return f.error }

// A GPUNode without a Node is observed without one; an error is returned.
func TestReadErrors(t *testing.T) {
	gpunode := controllertest.FaultyNode("n")
	o, _, err := nodestate.Read(t.Context(), action.Cluster{Client: controllertest.NewClient(t, gpunode)}, controllertest.Policies{}.Catalog(), gpunode)
	if err != nil || o.KubeNode != nil || o.Node.Exists {
		t.Errorf("without a Node: %+v, error %v", o, err)
	}
	// The plain client has no index of pods by node.
	if _, _, err := nodestate.Read(t.Context(), action.Cluster{Client: controllertest.NewPlainClient(t, gpunode)}, controllertest.Policies{}.Catalog(), gpunode); err == nil {
		t.Error("pods that cannot be listed are no error")
	}
	refused := errors.New("refused")
	if _, err := nodestate.NewPools(failing{refused}).Published(t.Context(), o, func(wire.Reading) bool { return true }); !errors.Is(err, refused) {
		t.Errorf("got error %v", err)
	}
}
