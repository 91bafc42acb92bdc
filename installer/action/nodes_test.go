package action

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

func gpuNode(name string) *v1alpha1.GPUNode {
	return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
}

// The taint of a node is for its pool and driver alone, has the effect NoSchedule, and is created and deleted once.
func TestTaintOfOneNode(t *testing.T) {
	s, c := newServer(t)
	for range 2 {
		if err := c.TaintNodeGPUs(t.Context(), gpuNode("n"), "gpu.example.com", "DriverUpgrade"); err != nil {
			t.Fatal(err)
		}
	}
	rule := read(s, "", TaintRuleName("n"), &resourceapi.DeviceTaintRule{})
	want := resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: new("gpu.example.com"), Pool: new("n-gpu.example.com")},
		Taint:          resourceapi.DeviceTaint{Key: v1alpha1.TaintMaintenance, Value: "DriverUpgrade", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}
	if diff := cmp.Diff(want, rule.Spec); diff != "" {
		t.Errorf("rule (-want +got):\n%s", diff)
	}
	if NodeOf(rule) != "n" {
		t.Errorf("the rule is of node %q", NodeOf(rule))
	}
	for range 2 {
		if err := c.UntaintNodeGPUs(t.Context(), gpuNode("n")); err != nil {
			t.Fatal(err)
		}
	}
	if exists(s, "", TaintRuleName("n"), &resourceapi.DeviceTaintRule{}) {
		t.Error("the rule is not deleted")
	}
	s.failing("create")
	mustFail(t, "taint", c.TaintNodeGPUs(t.Context(), gpuNode("n"), "d", "o"))
	s.failing("delete")
	mustFail(t, "untaint", c.UntaintNodeGPUs(t.Context(), gpuNode("n")))
}

// Without DeviceTaintRules, spec.deviceTaint makes the agent publish the taint. After an upgrade of the API server, it is removed too.
func TestTaintWithoutRules(t *testing.T) {
	node := gpuNode("n")
	s, c := newServer(t, node)
	c.SliceTaints = true
	now := func() *v1alpha1.GPUNode { return read(s, "", "n", &v1alpha1.GPUNode{}) }
	expect := func(when string, want v1alpha1.Operation) {
		t.Helper()
		tainted, err := c.NodeGPUsTainted(t.Context(), now())
		if got := now().Spec.DeviceTaint; got != want || tainted != (want != "") || err != nil {
			t.Errorf("%s: the taint is %q, tainted %t, error %v; want %q", when, got, tainted, err, want)
		}
	}
	expect("before", "")
	for _, operation := range []v1alpha1.Operation{v1alpha1.OperationDriverSwap, v1alpha1.OperationRemoval} {
		if err := c.TaintNodeGPUs(t.Context(), now(), "d", string(operation)); err != nil {
			t.Fatal(err)
		}
		expect("tainted", v1alpha1.OperationDriverSwap)
	}
	if exists(s, "", TaintRuleName("n"), &resourceapi.DeviceTaintRule{}) {
		t.Error("there is a rule")
	}
	for _, c.SliceTaints = range []bool{false, true} {
		expect("before its removal", v1alpha1.OperationDriverSwap)
		if err := c.UntaintNodeGPUs(t.Context(), now()); err != nil {
			t.Fatal(err)
		}
		expect("removed", "")
		c.SliceTaints = true
		if err := c.TaintNodeGPUs(t.Context(), now(), "d", string(v1alpha1.OperationDriverSwap)); err != nil {
			t.Fatal(err)
		}
	}
}

// Labels are written where they differ, removed where they are empty, and others stay.
func TestSetNodeLabels(t *testing.T) {
	tests := map[string]struct {
		set    map[string]string
		want   map[string]string
		writes int
	}{
		"as they are":        {map[string]string{"a": "1", "gone": ""}, map[string]string{"a": "1", "own": "x"}, 0},
		"another value":      {map[string]string{"a": "2"}, map[string]string{"a": "2", "own": "x"}, 1},
		"one less, one more": {map[string]string{"a": "", "b": "1"}, map[string]string{"b": "1", "own": "x"}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, c := newServer(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1", "own": "x"}}})
			if err := c.SetNodeLabels(t.Context(), read(s, "", "n", &corev1.Node{}), test.set); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, read(s, "", "n", &corev1.Node{}).Labels); diff != "" || len(s.writes) != test.writes {
				t.Errorf("%d writes, labels (-want +got):\n%s", len(s.writes), diff)
			}
		})
	}
	s, c := newServer(t)
	s.failing("patch")
	mustFail(t, "label", c.SetNodeLabels(t.Context(), &corev1.Node{}, map[string]string{"a": "1"}))
}

// The labels of operands are read as they are written.
func TestOperandLabels(t *testing.T) {
	for _, l := range []phase.Labels{{}, {Driver: "d", Agent: "default", Maintenance: "m", Toolkit: true, Ready: true}, {Toolkit: true}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: OperandLabels(l)}}
		if diff := cmp.Diff(l, ReadOperandLabels(node)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// The readiness taint is added and removed once, and other taints stay. A Node that changed since it was read is a conflict.
func TestReadinessTaint(t *testing.T) {
	own := corev1.Taint{Key: "own", Effect: corev1.TaintEffectNoExecute}
	s, c := newServer(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{own}}})
	now := func() *corev1.Node { return read(s, "", "n", &corev1.Node{}) }
	for range 2 {
		if err := c.AddReadinessTaint(t.Context(), now()); err != nil {
			t.Fatal(err)
		}
	}
	want := []corev1.Taint{own, {Key: v1alpha1.TaintNotReady, Effect: corev1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(want, now().Spec.Taints); diff != "" || len(s.writes) != 1 {
		t.Errorf("%d writes, taints (-want +got):\n%s", len(s.writes), diff)
	}
	for range 2 {
		if err := c.RemoveReadinessTaint(t.Context(), now()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]corev1.Taint{own}, now().Spec.Taints); diff != "" || len(s.writes) != 2 {
		t.Errorf("%d writes, taints (-want +got):\n%s", len(s.writes), diff)
	}
	stale := now()
	stale.ResourceVersion = "1"
	if err := c.AddReadinessTaint(t.Context(), stale); err == nil {
		t.Error("taints of an old version of the Node were written")
	}
}

// A label is the installer's only if it wrote it last.
func TestOwnsNodeLabel(t *testing.T) {
	fields := func(manager, text string) metav1.ManagedFieldsEntry {
		raw := &metav1.FieldsV1{}
		raw.SetRawString(text)
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: raw}
	}
	const label = `{"f:metadata":{"f:labels":{"f:a/b":{}}}}`
	for name, test := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"without fields":   {nil, false},
		"the installer's":  {[]metav1.ManagedFieldsEntry{fields(Manager, label)}, true},
		"another's":        {[]metav1.ManagedFieldsEntry{fields("kubectl", label)}, false},
		"another label":    {[]metav1.ManagedFieldsEntry{fields(Manager, `{"f:metadata":{"f:labels":{"f:a":{}}}}`)}, false},
		"without a record": {[]metav1.ManagedFieldsEntry{{Manager: Manager}}, false},
	} {
		if got := OwnsNodeLabel(&corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: test.fields}}, "a/b"); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// A maintenance begins once for an operation and keeps its ID; another operation begins another one.
func TestMaintenance(t *testing.T) {
	s, c := newServer(t, gpuNode("n"))
	now := func() *v1alpha1.GPUNode { return read(s, "", "n", &v1alpha1.GPUNode{}) }
	enter := func(operation v1alpha1.Operation) string {
		t.Helper()
		if err := c.EnterMaintenance(t.Context(), now(), v1alpha1.Maintenance{Operation: operation}, time.Unix(100, 5)); err != nil {
			t.Fatal(err)
		}
		m := now().Spec.Maintenance
		if m == nil || m.ID == "" || m.Operation != operation || m.Since.Unix() != 100 {
			t.Fatalf("the maintenance is %+v", m)
		}
		return m.ID
	}
	first := enter(v1alpha1.OperationRemoval)
	if again := enter(v1alpha1.OperationRemoval); again != first {
		t.Errorf("the same maintenance has the IDs %s and %s", first, again)
	}
	if other := enter(v1alpha1.OperationDriverSwap); other == first {
		t.Error("another operation has the same ID")
	}
	for range 2 {
		if err := c.LeaveMaintenance(t.Context(), now()); err != nil {
			t.Fatal(err)
		}
	}
	if m := now().Spec.Maintenance; m != nil || len(s.writes) != 3 {
		t.Errorf("the maintenance is %+v after %d writes", m, len(s.writes))
	}
	s.failing("patch")
	mustFail(t, "enter", c.EnterMaintenance(t.Context(), now(), v1alpha1.Maintenance{Operation: v1alpha1.OperationRemoval}, time.Now()))
}

// A grant writes driver, pool and MIG mode and nothing else, once. A GPUNode that changed since it was read is a conflict.
func TestGrants(t *testing.T) {
	driver := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "d"}
	node := gpuNode("n")
	node.Spec.Maintenance = &v1alpha1.Maintenance{ID: "m"}
	s, c := newServer(t, node)
	now := func() *v1alpha1.GPUNode { return read(s, "", "n", &v1alpha1.GPUNode{}) }
	grant := Grant{Driver: driver, AgentPool: "p", MIGMode: v1alpha1.MIGEnabled}
	for range 2 {
		if err := c.WriteGrant(t.Context(), now(), grant); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(grant, GrantOf(now())); diff != "" || now().Spec.Maintenance == nil || len(s.writes) != 1 {
		t.Errorf("%d writes, maintenance %+v, grant (-want +got):\n%s", len(s.writes), now().Spec.Maintenance, diff)
	}
	if err := c.GrantDriver(t.Context(), now(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Grant{AgentPool: "p", MIGMode: v1alpha1.MIGEnabled}, GrantOf(now())); diff != "" {
		t.Errorf("grant without a driver (-want +got):\n%s", diff)
	}
	stale := now()
	stale.ResourceVersion = "1"
	if err := c.GrantDriver(t.Context(), stale, driver); err == nil || !strings.Contains(err.Error(), "write spec of GPUNode n") {
		t.Errorf("an old version of the GPUNode was written: %v", err)
	}
}

// The GPUNode of a Node is owned by it, and one that exists stays as it is.
func TestCreateGPUNode(t *testing.T) {
	s, c := newServer(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	for range 2 {
		if err := c.CreateGPUNode(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
	if diff := cmp.Diff(want, read(s, "", "n", &v1alpha1.GPUNode{}).OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	s.failing("create")
	mustFail(t, "create", c.CreateGPUNode(t.Context(), node))
}

// A validated node has its driver as the last good one, in the boot, and the attempt that still counts.
func TestRecords(t *testing.T) {
	driver := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "d"}
	node := gpuNode("n")
	node.Spec.Driver = driver
	s, c := newServer(t, node, gpuNode("bare"))
	now := func(name string) *v1alpha1.GPUNode { return read(s, "", name, &v1alpha1.GPUNode{}) }
	attempt := &v1alpha1.Attempt{Digest: "old", Reason: "DriverFailed"}
	if err := c.RecordValidated(t.Context(), now("n"), "boot", attempt, time.Unix(100, 5), "m"); err != nil {
		t.Fatal(err)
	}
	status := now("n").Status
	if v := status.Validated; v == nil || v.BootID != "boot" || v.Digest != "d" || v.At.Unix() != 100 || v.Message != "m" {
		t.Errorf("validated is %+v", v)
	}
	if !cmp.Equal(status.LastGoodDriver, driver) || status.Attempt == nil || status.Attempt.Digest != "old" {
		t.Errorf("last good %+v, attempt %+v", status.LastGoodDriver, status.Attempt)
	}
	if err := c.RecordValidated(t.Context(), now("bare"), "boot", nil, time.Unix(100, 0), ""); err != nil {
		t.Fatal(err)
	}
	if v := now("bare").Status; v.Validated == nil || v.Validated.Digest != "" || v.LastGoodDriver != nil {
		t.Errorf("without a driver: %+v", v)
	}
	writes := len(s.writes)
	for range 2 {
		if err := c.RecordLastGoodDriver(t.Context(), now("bare"), driver); err != nil {
			t.Fatal(err)
		}
	}
	if got := now("bare").Status.LastGoodDriver; !cmp.Equal(got, driver) || len(s.writes) != writes+1 {
		t.Errorf("last good driver %+v after %d writes", got, len(s.writes)-writes)
	}
}

// A rollback writes the attempt and then the grant; after a crash between the two it is completed and counts no attempt twice.
func TestRollBack(t *testing.T) {
	node := gpuNode("n")
	node.Spec.Driver = &v1alpha1.DesiredDriver{Digest: "new"}
	s, c := newServer(t, node)
	now := func() *v1alpha1.GPUNode { return read(s, "", "n", &v1alpha1.GPUNode{}) }
	grant, attempt := Grant{Driver: &v1alpha1.DesiredDriver{Digest: "old"}}, &v1alpha1.Attempt{Digest: "new", Count: 2}
	patches := 0
	s.failing("patch")
	mustFail(t, "roll back", c.RollBack(t.Context(), now(), grant, attempt))
	if now().Spec.Driver.Digest != "new" {
		t.Error("the grant was written before the attempt")
	}
	s.fail = nil
	for range 2 {
		if err := c.RollBack(t.Context(), now(), grant, attempt); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range s.writes {
		if strings.HasPrefix(w, "patch") {
			patches++
		}
	}
	if n := now(); n.Spec.Driver.Digest != "old" || n.Status.Attempt == nil || n.Status.Attempt.Count != 2 || patches != 3 {
		t.Errorf("spec %+v, attempt %+v, %d writes with the one that failed", n.Spec, n.Status.Attempt, patches)
	}
	if err := c.RollBack(t.Context(), now(), Grant{}, nil); err != nil || now().Status.Attempt == nil || now().Spec.Driver != nil {
		t.Errorf("without an attempt: error %v, %+v", err, now())
	}
}

// The status of policies is written whole; an object of another group has none.
func TestWritePolicyStatus(t *testing.T) {
	s, c := newServer(t, &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "own"}})
	policy, driver := read(s, "", "default", &v1alpha1.ClusterPolicy{}), read(s, "", "own", &v1alpha1.NVIDIADriver{})
	if err := c.WritePolicyStatus(t.Context(), policy, v1alpha1.ClusterPolicyStatus{ObservedGeneration: 3}); err != nil {
		t.Fatal(err)
	}
	if err := c.WritePolicyStatus(t.Context(), driver, v1alpha1.NVIDIADriverStatus{ObservedGeneration: 4}); err != nil {
		t.Fatal(err)
	}
	if p, d := read(s, "", "default", &v1alpha1.ClusterPolicy{}), read(s, "", "own", &v1alpha1.NVIDIADriver{}); p.Status.ObservedGeneration != 3 || d.Status.ObservedGeneration != 4 {
		t.Errorf("statuses %+v, %+v", p.Status, d.Status)
	}
	if err := c.WritePolicyStatus(t.Context(), &corev1.Node{}, nil); err == nil || !strings.Contains(err.Error(), "is no kind of") {
		t.Errorf("a Node: got error %v", err)
	}
	if err := c.WritePolicyStatus(t.Context(), policy, func() {}); err == nil || !strings.Contains(err.Error(), "encode status") {
		t.Errorf("a status that cannot be encoded: got error %v", err)
	}
	s.failing("patch")
	mustFail(t, "write", c.WritePolicyStatus(t.Context(), policy, v1alpha1.ClusterPolicyStatus{}))
	if got := NodeOf(&corev1.Pod{}); got != "" {
		t.Errorf("a pod of nothing is of node %q", got)
	}
}

// A consumer is the pod that a claim was reserved for, as long as it runs.
func TestReadConsumer(t *testing.T) {
	pod := func(name string, p corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{Phase: p}}
	}
	s, _ := newServer(t, pod("runs", corev1.PodRunning), pod("done", corev1.PodSucceeded), pod("failed", corev1.PodFailed))
	for name, want := range map[string]bool{"runs": true, "done": false, "failed": false, "absent": false} {
		got, err := ReadConsumer(t.Context(), s, client.ObjectKey{Namespace: "a", Name: name}, types.UID(name))
		if err != nil || (got != nil) != want {
			t.Errorf("%s: got %v, error %v", name, got, err)
		}
	}
	if got, err := ReadConsumer(t.Context(), s, client.ObjectKey{Namespace: "a", Name: "runs"}, "another"); err != nil || got != nil {
		t.Errorf("another pod of the name: got %v, error %v", got, err)
	}
	s.failing("get")
	_, err := ReadConsumer(t.Context(), s, client.ObjectKey{Namespace: "a", Name: "runs"}, "runs")
	mustFail(t, "read", err)
}
