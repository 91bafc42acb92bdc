package policy

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/render"
)

// The condition Ready has the first cause why the spec is not in force everywhere.
func TestPolicyConditions(t *testing.T) {
	all := v1alpha1.NodeCounts{Total: 3, Ready: 3}
	tests := map[string]struct {
		nodes                        nodeSummary
		rollout                      *v1alpha1.RolloutStatus
		operand                      string
		faults                       []fault
		ready                        string
		progressing, degraded, pause bool
	}{
		"in force":              {nodes: nodeSummary{counts: all}, ready: "Ready"},
		"no node":               {ready: "NoGPUNodes"},
		"a fault":               {nodes: nodeSummary{counts: all}, faults: []fault{{"DriverUnknown", "m"}}, ready: "DriverUnknown", degraded: true},
		"a stuck node":          {nodes: nodeSummary{counts: v1alpha1.NodeCounts{Total: 3, Ready: 2, Blocked: 1}, stuck: []string{"n"}}, ready: "NodesStuck", degraded: true},
		"a rollout under way":   {nodes: nodeSummary{counts: all, outdated: 1}, ready: "Rollout", progressing: true},
		"nodes on their way":    {nodes: nodeSummary{counts: v1alpha1.NodeCounts{Total: 3, Ready: 2}}, ready: "NodesNotReady", progressing: true},
		"an operand is missing": {nodes: nodeSummary{counts: all}, operand: "Deployment d", ready: "OperandNotAvailable"},
		"a paused rollout": {
			nodes: nodeSummary{counts: all, outdated: 1}, rollout: &v1alpha1.RolloutStatus{Stage: v1alpha1.RolloutPaused, Reason: "r"}, ready: "RolloutPaused", pause: true,
		},
	}
	for name, test := range tests {
		c := derivePolicyConditions(test.nodes, test.rollout, test.operand, test.faults)
		if c.ready.reason != test.ready || c.ready.is != (test.ready == "Ready") {
			t.Errorf("%s: Ready is %+v, want %s", name, c.ready, test.ready)
		}
		if c.progressing.is != test.progressing || c.degraded.is != test.degraded || c.paused.is != test.pause {
			t.Errorf("%s: progressing %t, degraded %t, paused %t", name, c.progressing.is, c.degraded.is, c.paused.is)
		}
	}
	if got := joinFirst(strings.Split("a b c d e f g", " ")); got != "a, b, c, d, e and 2 more; see kubectl get gpunodes" {
		t.Errorf("got %q", got)
	}
}

// Nodes are counted by their phases; a grant that was not reconciled yet is outdated.
func TestSummarizeNodes(t *testing.T) {
	p := &pass{}
	for name, phase := range map[string]v1alpha1.NodePhase{
		"r": v1alpha1.PhaseReady, "u": v1alpha1.PhaseUpgrading, "b": v1alpha1.PhaseBlocked, "f": v1alpha1.PhaseFailed, "k": v1alpha1.PhaseRolledBack, "v": v1alpha1.PhaseValidating,
	} {
		node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.GPUNodeStatus{Phase: phase, Reason: "R"}}
		if name == "r" {
			node.Generation = 2
		}
		p.members = append(p.members, member{gpunode: node, node: controllertest.ServingNode(name), assignment: catalog.Assignment{Chosen: name != "v"}})
	}
	s := p.summarizeNodes(func(m member) bool { return m.assignment.Managed() })
	if want := (v1alpha1.NodeCounts{Total: 5, Ready: 1, Upgrading: 1, Blocked: 1, Failed: 2}); s.counts != want || s.outdated != 1 || len(s.stuck) != 3 {
		t.Errorf("got %+v, want %+v", s, want)
	}
}

// The first operand of the cluster that is not available is named.
func TestUnavailableOperand(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: "d", Generation: 1}
	deployment := func(observed int64, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Status: appsv1.DeploymentStatus{ObservedGeneration: observed, AvailableReplicas: available}}
	}
	for name, test := range map[string]struct {
		live []client.Object
		want string
	}{
		"available":        {[]client.Object{deployment(1, 1)}, ""},
		"absent":           {nil, "does not exist yet"},
		"without a pod":    {[]client.Object{deployment(1, 0)}, "has no available pod"},
		"an edit is newer": {[]client.Object{deployment(0, 1)}, "has no available pod"},
	} {
		r := New(Config{Cluster: action.Cluster{Client: controllertest.NewPlainClient(t, test.live...)}})
		other := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: render.OperandToolkit}}
		got, err := r.unavailableOperand(t.Context(), &pass{objects: []client.Object{other, &corev1.Service{}, deployment(0, 0)}})
		if err != nil || !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: got %q, error %v", name, got, err)
		}
	}
}

// An Event is recorded for a condition whose status or reason changed, a Warning where people must act.
func TestConditionEvents(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := New(Config{Events: report.Recorder{Events: recorder}})
	old := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"}}
	r.recordConditionEvents(&v1alpha1.ClusterPolicy{}, old, []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "another"},
		{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: "NodesStuck"},
	})
	if len(recorder.Events) != 1 {
		t.Fatalf("%d Events", len(recorder.Events))
	}
	if got := <-recorder.Events; !strings.HasPrefix(got, "Warning DegradedTrue") || !strings.Contains(got, "NodesStuck") {
		t.Errorf("the Event is %q", got)
	}
}

// An NVIDIADriver names the nodes that another one selects too, and every reason why its driver cannot be rendered.
func TestSelectorConflicts(t *testing.T) {
	failed := catalog.RenderedDriver{Key: catalog.DriverKey{Owner: "own"}, Err: client.IgnoreNotFound(errNoImage{})}
	p := &pass{drivers: map[catalog.DriverKey]catalog.RenderedDriver{failed.Key: failed, {Owner: "other"}: {Err: errNoImage{}}}}
	for _, name := range []string{"a", "b"} {
		p.members = append(p.members, member{node: controllertest.ServingNode(name), assignment: catalog.Assignment{
			Chosen: true, Conflict: "both", ConflictingDrivers: []string{"own", "third"},
		}})
	}
	nodes, faults := p.selectorConflicts("own")
	if len(nodes) != 2 || len(faults) != 2 || faults[0].reason != "Conflict" && faults[1].reason != "Conflict" {
		t.Errorf("nodes %v, faults %+v", nodes, faults)
	}
	if nodes, faults := p.selectorConflicts("fourth"); len(nodes)+len(faults) > 0 {
		t.Errorf("of an uninvolved driver: %v, %+v", nodes, faults)
	}
}

type errNoImage struct{}

func (errNoImage) Error() string { return "no image" }

// A cluster that lacks kinds has no scheduler, whatever the policy has, and the policy is Ready all the same; the condition Reduced states the reason.
func TestClusterWithoutScheduler(t *testing.T) {
	c := controllertest.NewClient(t, freshCluster()...)
	r := newReconciler(t, c)
	r.Catalogs.WithoutScheduler()
	r.Cluster.SliceTaints, r.Reduced = true, "tessera-scheduler does not run"
	condition := func() *metav1.Condition {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		policy := &v1alpha1.ClusterPolicy{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
			t.Fatal(err)
		}
		if policy.Spec.Scheduler.Enabled != nil {
			t.Error("the spec of the policy was changed")
		}
		return meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReduced)
	}
	if got := condition(); got == nil || got.Status != metav1.ConditionTrue || got.Reason != "SchedulerOff" || got.Message != r.Reduced {
		t.Errorf("the condition is %+v", got)
	}
	deployments, rules := &appsv1.DeploymentList{}, &resourceapi.DeviceTaintRuleList{}
	if err := errors.Join(c.List(t.Context(), deployments), c.List(t.Context(), rules)); err != nil || len(deployments.Items)+len(rules.Items) > 0 {
		t.Errorf("there are Deployments %v and rules %v, error %v", deployments.Items, rules.Items, err)
	}
	r.Reduced = "" // the API server was upgraded
	if got := condition(); got != nil {
		t.Errorf("after an upgrade of the API server: %+v", got)
	}
}
