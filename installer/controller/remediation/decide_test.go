package remediation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// errInjected is the error of a request that a test lets fail.
var errInjected = errors.New("the API server is not reachable")

// failRequests lets those gets, lists and patches of a cluster fail that fails reports. name is empty for a list.
func failRequests(c *controllertest.Cluster, fails func(verb string, object any, name string) bool) {
	failure := func(verb string, object any, name string) error {
		if fails(verb, object, name) {
			return errInjected
		}
		return nil
	}
	c.WithWatch = interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, base client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := failure("get", o, key.Name); err != nil {
				return err
			}
			return base.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, base client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := failure("list", list, ""); err != nil {
				return err
			}
			return base.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, base client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := failure("patch", o, o.GetName()); err != nil {
				return err
			}
			return base.Patch(ctx, o, patch, options...)
		},
	})
}

// actPolicy returns a ClusterPolicy in mode Act under which n GPUs may be out of service.
func actPolicy(n int32) v1alpha1.ClusterPolicySpec {
	return v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct, MaxParallel: &n}}
}

// newRemediator returns a Remediator of a cluster.
func newRemediator(t *testing.T, c *controllertest.Cluster) *Remediator {
	t.Helper()
	metrics, err := report.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cluster, recorder := action.Cluster{Client: c, Live: c, Namespace: controllertest.Namespace}, report.Recorder{Events: c.Events}
	return New(Config{
		Cluster: cluster, Drainer: drain.New(cluster, recorder, metrics), Pools: nodestate.NewPools(c), Obstacles: report.NewObstacles(), Events: recorder,
		Metrics: metrics,
	})
}

// decide reads a node and returns what is decided about its GPUs.
func decide(t *testing.T, c *controllertest.Cluster, cat *catalog.Catalog, gpunode *v1alpha1.GPUNode) []gpuRemediation {
	t.Helper()
	r := newRemediator(t, c)
	node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, gpunode)
	if err != nil {
		t.Fatal(err)
	}
	n, done, err := r.Decide(t.Context(), cat, node, phase.Decision{})
	done()
	if err != nil {
		t.Fatal(err)
	}
	return n.gpus
}

// decideNode reads a node from the cluster and decides about its GPUs.
func decideNode(t *testing.T, r *Remediator, cat *catalog.Catalog, name string) (*NodeRemediation, error) {
	t.Helper()
	gpunode := &v1alpha1.GPUNode{}
	if err := r.Cluster.Client.Get(t.Context(), client.ObjectKey{Name: name}, gpunode); err != nil {
		t.Fatal(err)
	}
	node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, gpunode)
	if err != nil {
		t.Fatal(err)
	}
	n, done, err := r.Decide(t.Context(), cat, node, phase.Decision{Phase: v1alpha1.PhaseReady})
	done()
	return n, err
}

// reconcile decides about the GPUs of a node, writes the status, and performs what was decided. It returns the written statuses and the error.
func reconcile(t *testing.T, r *Remediator, cat *catalog.Catalog, name string) ([]v1alpha1.RemediationStatus, error) {
	t.Helper()
	n, err := decideNode(t, r, cat, name)
	if err != nil {
		t.Fatal(err)
	}
	status := *n.node.GPUNode.Status.DeepCopy()
	status.Remediations = n.Statuses()
	if err := r.Cluster.WriteNodeStatus(t.Context(), n.node.GPUNode, status); err != nil {
		t.Fatal(err)
	}
	_, err = n.RemediateNodeGPUs(t.Context())
	return status.Remediations, err
}

// TestHealthyNodeDoesNotWaitForTheBudget checks that a node without faults has no remediation, and that its reconcile does not wait for one of a node
// with faults.
func TestHealthyNodeDoesNotWaitForTheBudget(t *testing.T) {
	faulty, healthy := controllertest.FaultyNode("m", controllertest.XIDFault(t, "m", 0, 95, "Reset")), controllertest.FaultyNode("n")
	c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{faulty, healthy})
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
	node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, c.GPUNode("m"))
	if err != nil {
		t.Fatal(err)
	}
	_, done, err := r.Decide(t.Context(), cat, node, phase.Decision{})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	other, _, err := nodestate.Read(t.Context(), r.Cluster, cat, c.GPUNode("n"))
	if err != nil {
		t.Fatal(err)
	}
	decided := make(chan *NodeRemediation, 1)
	go func() {
		n, otherDone, err := r.Decide(t.Context(), cat, other, phase.Decision{})
		otherDone()
		if err != nil {
			t.Error(err)
		}
		decided <- n
	}()
	var n *NodeRemediation
	select {
	case n = <-decided:
	case <-time.After(30 * time.Second):
		t.Fatal("the decision about the healthy node waits for the budget")
	}
	if list := n.Statuses(); len(list) > 0 {
		t.Errorf("got remediations %+v", list)
	}
	if after, err := n.RemediateNodeGPUs(t.Context()); err != nil || after != 0 || len(c.GPUNode("n").Spec.Remediations) > 0 {
		t.Errorf("decides again after %s, error %v, orders %+v", after, err, c.GPUNode("n").Spec.Remediations)
	}
	for _, condition := range n.Conditions() {
		if condition.Met != (condition.Type == v1alpha1.ConditionGPUsHealthy) {
			t.Errorf("condition %+v", condition)
		}
	}
}

// TestConditionsFollowTheDecision checks that the conditions name the faulty GPU and the requested reboot, and that the health is not reported while the
// agent does not run.
func TestConditionsFollowTheDecision(t *testing.T) {
	gpu := controllertest.GPU(t, "n", 0).Name()
	c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 79, "Reboot"))})
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
	n, err := decideNode(t, r, cat, "n")
	if err != nil {
		t.Fatal(err)
	}
	got := n.Conditions()
	if len(got) != 2 || got[0].Type != v1alpha1.ConditionGPUsHealthy || got[0].Met || got[0].Message != gpu+" XID 79" {
		t.Errorf("got %+v, want GPUsHealthy to name the GPU and its fault", got)
	}
	message := gpu + ": a reset cannot clear the faults: XID 79"
	if reboot := got[len(got)-1]; reboot.Type != v1alpha1.ConditionRebootRequired || !reboot.Met || !strings.HasPrefix(reboot.Message, message) {
		t.Errorf("got %+v, want RebootRequired to name the GPU and its fault", reboot)
	}
	if err := c.Delete(t.Context(), controllertest.AgentPod("n")); err != nil {
		t.Fatal(err)
	}
	if n, err = decideNode(t, r, cat, "n"); err != nil {
		t.Fatal(err)
	}
	if got := n.Conditions(); len(got) != 1 || got[0].Type != v1alpha1.ConditionRebootRequired || got[0].Met {
		t.Errorf("without an agent: %+v, want only RebootRequired", got)
	}
}

// TestGPUThatCannotBeObservedKeepsItsStatus checks that a GPU is left as it is while a request about it fails. The other GPUs are remediated, and the
// error names what could not be read.
func TestGPUThatCannotBeObservedKeepsItsStatus(t *testing.T) {
	first := action.ValidationName("n", action.GPUValidationPart(controllertest.GPU(t, "n", 0).Name()))
	isClaims := func(object any) bool { _, is := object.(*resourceapi.ResourceClaimList); return is }
	isSlices := func(object any) bool { _, is := object.(*resourceapi.ResourceSliceList); return is }
	for name, test := range map[string]struct {
		fails func(verb string, object any, name string) bool
		want  string
		// other is the action of the other GPU.
		other remediation.Action
	}{
		"its validation": {func(_ string, _ any, name string) bool { return name == first }, "read validation of node n", remediation.Direct},
		"the claims":     {func(_ string, object any, _ string) bool { return isClaims(object) }, "list claims of pool", remediation.Wait},
		"the devices":    {func(_ string, object any, _ string) bool { return isSlices(object) }, "list ResourceSlices of node n", remediation.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			node := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonDraining, 0)
			node.Status.Agent.Faults = append(node.Status.Agent.Faults, controllertest.XIDFault(t, "n", 1, 95, "Reset"))
			users := controllertest.User("training", "n", controllertest.WholeGPU(t, "n", 0))
			c := controllertest.NewCluster(t, actPolicy(2), []*v1alpha1.GPUNode{node}, users...)
			failRequests(c, test.fails)
			r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(2)}.Catalog()
			n, err := decideNode(t, r, cat, "n")
			if err != nil {
				t.Fatal(err)
			}
			g, before := n.gpus[0], c.GPUNode("n").Status.Remediations[0]
			if now := g.decision.Status; g.decision.Action != remediation.Wait || !equality.Semantic.DeepEqual(*now, before) || len(g.victims) > 0 {
				t.Errorf("action %s, status %+v, victims %+v, want status %+v", g.decision.Action, now, g.victims, before)
			}
			if got := n.gpus[1].decision.Action; got != test.other {
				t.Errorf("the action of the other GPU is %s, want %s", got, test.other)
			}
			if _, err = n.RemediateNodeGPUs(t.Context()); !errors.Is(err, errInjected) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			if got := len(c.GPUNode("n").Spec.Remediations); (got == 2) != (test.other == remediation.Direct) {
				t.Errorf("%d GPUs are out of service", got)
			}
		})
	}
}

// TestMessageNamesAnErrorOnlyWhileItOccurs checks that the message of a GPU has the error that keeps it from being observed or its order from being
// written, once, and loses it when the requests succeed again, also in a step that keeps its message.
func TestMessageNamesAnErrorOnlyWhileItOccurs(t *testing.T) {
	const message, outage = "a reset cannot clear the faults: XID 95; reboot the node", 3
	for name, test := range map[string]struct {
		order v1alpha1.RemediationOrder
		fails func(object any) bool
		// clean is the first reconcile without the error. One that performs an action writes the message before.
		clean int
	}{
		"its claims cannot be listed": {v1alpha1.OrderHold, func(object any) bool { _, is := object.(*resourceapi.ResourceClaimList); return is }, outage},
		"its order cannot be written": {v1alpha1.OrderValidate, func(object any) bool { _, is := object.(*v1alpha1.GPUNode); return is }, outage + 1},
	} {
		t.Run(name, func(t *testing.T) {
			node := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepRebootRequested, remediation.ReasonResetInsufficient, 0)
			node.Spec.Remediations[0].Step, node.Status.Remediations[0].BootID, node.Status.Remediations[0].Message = test.order, "b", message
			c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{node})
			at := 0
			failRequests(c, func(verb string, object any, _ string) bool {
				return at < outage && verb != "get" && test.fails(object)
			})
			r, cat := newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
			for ; at < outage+2; at++ {
				list, err := reconcile(t, r, cat, "n")
				if (err != nil) != (at < outage) || len(list) != 1 {
					t.Fatalf("reconcile %d: got %+v, error %v", at, list, err)
				}
				want := 0
				if at > 0 && at < test.clean {
					want = 1
				}
				got := list[0].Message
				if strings.Count(got, errInjected.Error()) != want || !strings.HasPrefix(got, message) || want == 0 && got != message {
					t.Errorf("reconcile %d: the message is %q, want the error %d times", at, got, want)
				}
			}
		})
	}
}

// TestAgentStatusAndHistoryDecide checks that only the agent's status of the present order and the records of the same GPU count.
func TestAgentStatusAndHistoryDecide(t *testing.T) {
	first, second := controllertest.GPU(t, "n", 0).Name(), controllertest.GPU(t, "n", 1).Name()
	failed := func(gpu string) v1alpha1.RemediationRecord {
		at := metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy()
		return v1alpha1.RemediationRecord{
			ID: "old", GPU: gpu, Faults: []string{"XID 95"}, Outcome: v1alpha1.OutcomeFailed, Reason: remediation.ReasonDrainBlocked, Began: at, Ended: at,
		}
	}
	for name, test := range map[string]struct {
		begun  bool
		change func(*v1alpha1.GPUNodeStatus)
		step   v1alpha1.RemediationStep
		reason string
	}{
		"no claim is prepared": {true, func(s *v1alpha1.GPUNodeStatus) {
			s.Agent.Remediations[0].PreparedClaims = 0
		}, v1alpha1.RemediationStepReset, remediation.ReasonRemovingMonitors},
		"of another order": {true, func(s *v1alpha1.GPUNodeStatus) {
			s.Agent.Remediations[0] = v1alpha1.AgentRemediation{ID: "another", State: v1alpha1.RemediationStateHolding}
		}, v1alpha1.RemediationStepDrain, remediation.ReasonDraining},
		"an attempt failed": {false, func(s *v1alpha1.GPUNodeStatus) {
			s.History = []v1alpha1.RemediationRecord{failed(first)}
		}, v1alpha1.RemediationStepWaiting, remediation.ReasonBackoff},
		"an attempt on another GPU failed": {false, func(s *v1alpha1.GPUNodeStatus) {
			s.History = []v1alpha1.RemediationRecord{failed(second)}
		}, v1alpha1.RemediationStepHold, remediation.ReasonHolding},
	} {
		t.Run(name, func(t *testing.T) {
			node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
			if test.begun {
				node = controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonDraining, 0)
			}
			test.change(&node.Status)
			c := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{node})
			n, err := decideNode(t, newRemediator(t, c), controllertest.Policies{Spec: actPolicy(1)}.Catalog(), "n")
			if err != nil {
				t.Fatal(err)
			}
			if got := n.Statuses(); len(got) != 1 || got[0].Step != test.step || got[0].Reason != test.reason {
				t.Errorf("got %+v, want step %s and reason %s", got, test.step, test.reason)
			}
		})
	}
}

// TestModeOff checks that a new fault is left alone, and that a GPU that was taken out of service returns with a record of the reason.
func TestModeOff(t *testing.T) {
	spec := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationOff}}
	node := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepHold, remediation.ReasonHolding, 0)
	node.Status.Agent.Faults = append(node.Status.Agent.Faults, controllertest.XIDFault(t, "n", 1, 95, "Reset"))
	c := controllertest.NewCluster(t, spec, []*v1alpha1.GPUNode{node})
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: spec}.Catalog()
	if list, err := reconcile(t, r, cat, "n"); err != nil || len(list) != 1 || list[0].Step != v1alpha1.RemediationStepRestore {
		t.Fatalf("got %+v, error %v", list, err)
	}
	held, history := c.GPUNode("n").Spec.Remediations, c.GPUNode("n").Status.History
	if len(held) > 0 || len(history) != 1 || history[0].Outcome != v1alpha1.OutcomeStopped || history[0].Reason != remediation.ReasonOff {
		t.Errorf("out of service %+v, history %+v", held, history)
	}
	if events := c.DrainEvents(); !slices.ContainsFunc(events, func(e string) bool {
		return strings.HasPrefix(e, corev1.EventTypeNormal+" RemediationStopped") && strings.HasSuffix(e, "remediation.mode is Off")
	}) {
		t.Errorf("got Events %q", events)
	}
	if list, err := reconcile(t, r, cat, "n"); err != nil || len(list) > 0 {
		t.Errorf("afterwards: got %+v, error %v", list, err)
	}
}
