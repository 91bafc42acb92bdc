package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Each action of the phase table changes its object and no other kind of object; one that the table does not have is an error.
func TestEveryActionIsPerformed(t *testing.T) {
	driver := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "d"}
	attempt := &v1alpha1.Attempt{Digest: "x"}
	exists := func(object client.Object, namespace, name string) func(*testCluster) bool {
		return func(c *testCluster) bool {
			return c.Get(c.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object) == nil
		}
	}
	not := func(f func(*testCluster) bool) func(*testCluster) bool {
		return func(c *testCluster) bool { return !f(c) }
	}
	gpunode := func(f func(*v1alpha1.GPUNode) bool) func(*testCluster) bool {
		return func(c *testCluster) bool { return f(c.GPUNode("n")) }
	}
	rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: action.TaintRuleName("n")}}
	mig := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: action.MIGModePodName("n")}}
	proof := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: action.ValidationName("n", action.PartGPUs)}}
	taint, change, validation := exists(&resourceapi.DeviceTaintRule{}, "", rule.Name), exists(&corev1.Pod{}, mig.Namespace, mig.Name), exists(&corev1.Pod{}, proof.Namespace, proof.Name)
	tests := map[phase.Action]struct {
		decision phase.Decision
		have     []client.Object
		done     func(*testCluster) bool
	}{
		phase.Wait:     {done: func(c *testCluster) bool { return c.Writes == 0 }},
		phase.Place:    {decision: phase.Decision{Labels: phase.Labels{Agent: "p"}}, done: func(c *testCluster) bool { return c.Node("n").Labels[v1alpha1.LabelAgent] == "p" }},
		phase.KeepHost: {done: gpunode(func(n *v1alpha1.GPUNode) bool { return n.Spec.Driver == nil })},
		phase.Adopt: {decision: phase.Decision{Driver: driver, Good: true}, done: gpunode(func(n *v1alpha1.GPUNode) bool {
			return n.Spec.Driver.Digest == "d" && n.Status.LastGoodDriver.Digest == "d"
		})},
		phase.Taint:      {decision: phase.Decision{Maintenance: v1alpha1.Maintenance{Operation: v1alpha1.OperationMIGMode}}, done: taint},
		phase.Untaint:    {have: []client.Object{rule}, done: not(taint)},
		phase.Enter:      {decision: phase.Decision{Maintenance: v1alpha1.Maintenance{Operation: v1alpha1.OperationMIGMode}}, done: gpunode(func(n *v1alpha1.GPUNode) bool { return n.Spec.Maintenance != nil })},
		phase.Leave:      {done: gpunode(func(n *v1alpha1.GPUNode) bool { return n.Spec.Maintenance == nil })},
		phase.Evict:      {done: func(c *testCluster) bool { return c.Writes == 0 }},
		phase.Operate:    {done: change},
		phase.EndOperate: {have: []client.Object{mig}, done: not(change)},
		phase.Validate: {
			have: []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllertest.Namespace}}}, done: validation,
		},
		phase.EndValidate: {have: []client.Object{proof}, done: not(validation)},
		phase.Record:      {decision: phase.Decision{Attempt: attempt}, done: gpunode(func(n *v1alpha1.GPUNode) bool { return n.Status.Validated != nil && n.Status.Attempt.Digest == "x" })},
		phase.RollBack:    {decision: phase.Decision{Driver: driver, Attempt: attempt}, done: gpunode(func(n *v1alpha1.GPUNode) bool { return n.Spec.Driver.Digest == "d" && n.Status.Attempt.Digest == "x" })},
	}
	for name := range (nodeStep{observation: &nodeObservation{}}).actions() {
		if _, tested := tests[name]; !tested && name != "" {
			t.Errorf("%s is not tested", name)
		}
	}
	for name, test := range tests {
		t.Run(string(name), func(t *testing.T) {
			c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n")}, test.have...)
			cat := controllertest.Policies{}.Catalog()
			o, err := c.r.observe(t.Context(), cat, c.GPUNode("n"))
			if err != nil {
				t.Fatal(err)
			}
			o.Status.Validated = nil
			test.decision.Action = name
			if err := (nodeStep{c.r, cat, o, test.decision}).perform(t.Context()); err != nil || !test.done(c) {
				t.Errorf("error %v, GPUNode %+v", err, c.GPUNode("n"))
			}
		})
	}
	o := &nodeObservation{}
	o.GPUNode = &v1alpha1.GPUNode{}
	if err := (nodeStep{observation: o, decision: phase.Decision{Action: "Dance"}}).perform(t.Context()); err == nil || !strings.Contains(err.Error(), "no such action") {
		t.Errorf("an unknown action: got error %v", err)
	}
}

// The status has the state of each operand's pod, and Events of a node that needs people are Warnings.
func TestComponentStates(t *testing.T) {
	for state, want := range map[phase.PodState]v1alpha1.ComponentState{
		phase.PodAbsent: v1alpha1.ComponentAbsent, phase.PodPending: v1alpha1.ComponentPending, phase.PodStarting: v1alpha1.ComponentStarting,
		phase.PodReady: v1alpha1.ComponentReady, phase.PodSucceeded: v1alpha1.ComponentReady, phase.PodFailed: v1alpha1.ComponentFailed,
		phase.PodTerminating: v1alpha1.ComponentPending,
	} {
		if got := componentStatus("c", phase.Pod{State: state}); got.State != want {
			t.Errorf("%s: got %s, want %s", state, got.State, want)
		}
	}
	for state, want := range map[phase.ValidationState]v1alpha1.ComponentState{
		phase.ValidationNone: v1alpha1.ComponentAbsent, phase.ValidationRunning: v1alpha1.ComponentStarting, phase.ValidationPassed: v1alpha1.ComponentReady,
		phase.ValidationFailed: v1alpha1.ComponentFailed,
	} {
		o := &nodeObservation{}
		o.Validation.State = state
		all := componentStatuses(o, nil)
		if got := all[len(all)-1]; got.Name != phase.ComponentValidator || got.State != want {
			t.Errorf("validation %q: got %+v", state, got)
		}
	}
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, nil)
	c.r.recordPhaseEvent(&v1alpha1.GPUNode{}, phase.Decision{Phase: v1alpha1.PhaseBlocked, Reason: "Conflict"})
	c.r.recordPhaseEvent(&v1alpha1.GPUNode{}, phase.Decision{Phase: v1alpha1.PhaseUpgrading, Step: "Drain", Message: "m"})
	if got := c.DrainEvents(); len(got) != 2 || !strings.HasPrefix(got[0], "Warning Blocked Conflict") || !strings.HasPrefix(got[1], "Normal UpgradingDrain m") {
		t.Errorf("Events are %q", got)
	}
}

// A change requests the nodes that depend on it.
func TestRequestedNodes(t *testing.T) {
	owned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{action.LabelNode: "n"}, OwnerReferences: []metav1.OwnerReference{{Kind: "GPUNode", Name: "n"}},
	}}
	busy := controllertest.FaultyNode("busy")
	busy.Status.Phase = v1alpha1.PhaseUpgrading
	held := controllertest.FaultyNode("held")
	held.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: "g"}}
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{Driver: v1alpha1.DriverSpec{RepoConfig: "mirror"}}, []*v1alpha1.GPUNode{controllertest.FaultyNode("calm"), busy, held})
	claim := func(node string) client.Object { return controllertest.User("p", node, "d")[1] }
	for name, test := range map[string]struct {
		names func(context.Context, client.Object) []string
		of    client.Object
		want  []string
	}{
		"a Node":                               {sameName, controllertest.ServingNode("n"), []string{"n"}},
		"a pod that is not scheduled":          {nodesOfPod, owned, []string{"n"}},
		"a pod of an operand":                  {nodesOfPod, controllertest.AgentPod("m"), []string{"m"}},
		"an object of no node":                 {nodeOfObject, &corev1.Pod{}, nil},
		"a claim of a node in service":         {c.r.nodesOfClaim, claim("calm"), nil},
		"a claim of a node in an upgrade":      {c.r.nodesOfClaim, claim("busy"), []string{"busy"}},
		"a claim of a node with a remediation": {c.r.nodesOfClaim, claim("held"), []string{"held"}},
		"a claim of an unknown node":           {c.r.nodesOfClaim, claim("other"), nil},
		"a validation's claim":                 {c.r.nodesOfClaim, owned, []string{"n"}},
		"a policy":                             {c.r.allNodes, &v1alpha1.ClusterPolicy{}, []string{"busy", "calm", "held"}},
	} {
		if got := test.names(t.Context(), test.of); !slices.Equal(got, test.want) {
			t.Errorf("%s requests %q, want %q", name, got, test.want)
		}
	}
	for name, want := range map[string]bool{"mirror": true, "other": false} {
		passes := c.r.referenced()
		if got := passes.Generic(genericEvent(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})); got != want {
			t.Errorf("ConfigMap %s: %t", name, got)
		}
		if passes.Generic(genericEvent(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}})) {
			t.Errorf("Secret %s passes", name)
		}
	}
}

func genericEvent(o client.Object) event.GenericEvent { return event.GenericEvent{Object: o} }

// A node with a GPU according to Node Feature Discovery gets a GPUNode, unless discovery scans or no policy selects it.
func TestCreateFromFeatureLabels(t *testing.T) {
	for name, test := range map[string]struct {
		label  string
		policy v1alpha1.ClusterPolicySpec
		absent bool
		want   bool
	}{
		"a GPU":            {label: "0302_10de.present", want: true},
		"another device":   {label: "8086.present"},
		"discovery scans":  {label: "10de.present", policy: v1alpha1.ClusterPolicySpec{Discovery: v1alpha1.DiscoverySpec{Source: v1alpha1.DiscoverScan}}},
		"it is not chosen": {label: "10de.present", policy: v1alpha1.ClusterPolicySpec{NodeSelector: controllertest.InPool("x")}},
		"no Node":          {absent: true},
	} {
		t.Run(name, func(t *testing.T) {
			var more []client.Object
			if !test.absent {
				more = append(more, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{nfdLabels + test.label: "true"}}})
			}
			c := newTestCluster(t, test.policy, nil, more...)
			if _, err := c.r.Reconcile(t.Context(), trigger.Request("n")); err != nil {
				t.Fatal(err)
			}
			if got := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &v1alpha1.GPUNode{}) == nil; got != test.want {
				t.Errorf("a GPUNode was created: %t", got)
			}
		})
	}
}

// A conflict is tried again soon and is no error; a GPUNode that is being deleted is left alone; any other error is returned.
func TestReconcileErrors(t *testing.T) {
	refused, conflict := errors.New("refused"), apierrors.NewConflict(schema.GroupResource{}, "n", nil)
	for name, test := range map[string]struct {
		get, patch error
		fails      bool
		after      time.Duration
	}{
		"it changed meanwhile": {patch: conflict, after: trigger.ConflictDelay},
		"it cannot be written": {patch: refused, fails: true},
		"it cannot be read":    {get: refused, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n")})
			c.use(interceptor.NewClient(c.WithWatch, interceptor.Funcs{
				Get: func(ctx context.Context, base client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if _, is := o.(*v1alpha1.GPUNode); is && test.get != nil {
						return test.get
					}
					return base.Get(ctx, key, o, options...)
				},
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					return test.patch
				},
			}), c)
			result, err := c.r.Reconcile(t.Context(), trigger.Request("n"))
			if (err != nil) != test.fails || result.RequeueAfter != test.after {
				t.Errorf("%+v, error %v", result, err)
			}
		})
	}
	leaving := controllertest.FaultyNode("n")
	leaving.Finalizers, leaving.DeletionTimestamp = []string{"f/f"}, new(metav1.Now())
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{leaving})
	if c.step("n"); c.Writes > 0 {
		t.Errorf("%d writes to a GPUNode that is being deleted", c.Writes)
	}
	if render.OperandDriver != (&nodeObservation{}).Assignment.DriverOperand() {
		t.Error("a node without vGPUs has another driver operand")
	}
}
