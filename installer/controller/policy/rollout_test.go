package policy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/installer/rollout"
)

// TestA18MIGModeOfHostDriverWaits checks that nodes that keep their host's driver, and their pods, count in the plan of a MIG mode change, and that none
// of them starts during a pause.
func TestA18MIGModeOfHostDriverWaits(t *testing.T) {
	t.Parallel()
	policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}
	host := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverHost, Version: "580.1"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	gpunode := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1alpha1.GPUNodeSpec{Driver: host},
		Status: v1alpha1.GPUNodeStatus{
			Phase: v1alpha1.PhaseReady, LastGoodDriver: host, Validated: &v1alpha1.Validated{BootID: "1"},
			Hardware: &v1alpha1.HardwareStatus{BootID: "1", GPUs: 8, OS: "ubuntu24.04", HostDriver: "580.1", LoadedDriver: "580.1"},
			Agent:    &v1alpha1.AgentStatus{BootID: "1", MIGCapable: true, MIGMode: "Disabled", Architecture: "Ampere"},
		},
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "one"}, Status: resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Driver: v1alpha1.DriverName, Pool: "n-" + v1alpha1.DriverName, Device: "gpu-0"},
		}}},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "one"}},
	}}
	c := controllertest.NewPlainClient(t, policy, node, gpunode, claim)
	edit := Edit{Policy: policy.DeepCopy()}
	edit.Policy.Spec.NodeAgent.Pools = []v1alpha1.NodePool{{Name: "sliced", MIGMode: v1alpha1.MIGEnabled}}
	preview, err := PreviewEdit(t.Context(), c, controllertest.Namespace, render.Images{Node: "node:v1", Driver: "driver", DriverVersion: "570.1"}, edit)
	if err != nil {
		t.Fatal(err)
	}
	if plan := preview.Plans[catalog.PolicyOwner]; plan.Nodes != 1 || plan.Pods != 1 {
		t.Errorf("the plan has %d nodes with %d pods, want one with one", plan.Nodes, plan.Pods)
	}
	m := member{gpunode: gpunode, node: node, assignment: catalog.Assignment{MIGMode: v1alpha1.MIGEnabled}}
	f := rollout.Fleet{Policy: v1alpha1.UpgradePolicy{}.Complete(), Paused: true, Nodes: []rollout.Node{m.rolloutNode()}}
	if d := rollout.Next(f); len(d.Grant) != 0 || len(d.Waits) != 1 {
		t.Errorf("granted %v, waiting %v while it is paused", d.Grant, d.Waits)
	}
}

// TestWhatIsInServiceIsUpgraded checks which nodes are installed at once and which go through the rollout.
func TestWhatIsInServiceIsUpgraded(t *testing.T) {
	t.Parallel()
	container := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "0123456789abcdef"}
	host := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverHost, Version: "580.1"}
	tests := map[string]struct {
		change func(m *member)
		fresh  bool
	}{
		"a node on which nothing is": {func(*member) {}, true},
		"one that was proven once":   {func(m *member) { m.gpunode.Status.LastGoodDriver = container }, false},
		"one that failed its install": {func(m *member) {
			m.gpunode.Spec.Driver = container
			m.node.Labels[v1alpha1.LabelDriver] = "0123456789ab"
		}, true},
		"one whose GPUNode was lost": {func(m *member) {
			m.node.Labels[v1alpha1.LabelDriver], m.node.Labels[v1alpha1.LabelReady] = "0123456789ab", "true"
		}, false},
		"one without a driver of ours": {func(m *member) { m.gpunode.Status.Validated = &v1alpha1.Validated{} }, false},
		"one whose host's driver was removed": {func(m *member) {
			m.wanted, m.gpunode.Spec.Driver, m.gpunode.Status.LastGoodDriver = container, host, host
			m.gpunode.Status.Hardware = &v1alpha1.HardwareStatus{OS: "ubuntu24.04"}
		}, true},
	}
	for name, test := range tests {
		m := member{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}, gpunode: &v1alpha1.GPUNode{}}
		test.change(&m)
		if got := m.rolloutNode().New; got != test.fresh {
			t.Errorf("%s: installed at once: %t", name, got)
		}
	}
}

// TestModeThatTheAgentChanges checks that a MIG mode that the agent changes without a reset takes no slot of the rollout.
func TestModeThatTheAgentChanges(t *testing.T) {
	t.Parallel()
	for architecture, want := range map[string]bool{"Ampere": true, "Hopper": false} {
		m := member{node: &corev1.Node{}, gpunode: &v1alpha1.GPUNode{Spec: v1alpha1.GPUNodeSpec{MIGMode: v1alpha1.MIGEnabled}}}
		m.gpunode.Status.Agent = &v1alpha1.AgentStatus{MIGCapable: true, MIGMode: "Disabled", Architecture: architecture}
		if got := m.rolloutNode().Changing; got != want {
			t.Errorf("%s: changing: %t", architecture, got)
		}
	}
}

// TestNodesThatServeNoGPUs checks which nodes are down: those whose driver failed, and on which neither discovery nor agent report a loaded driver since
// the boot. Pods that are bound to the node do not count, because the case is a boot under pods.
func TestNodesThatServeNoGPUs(t *testing.T) {
	t.Parallel()
	failed := v1alpha1.ComponentStatus{Name: "driver", State: v1alpha1.ComponentFailed}
	tests := map[string]struct {
		change func(m *member)
		down   bool
	}{
		"the driver failed in this boot":       {func(*member) {}, true},
		"its pods are bound to the node":       {func(m *member) { m.pods = 3 }, true},
		"the report is of an earlier boot":     {func(m *member) { m.gpunode.Status.Hardware.BootID = "a" }, false},
		"there is no report":                   {func(m *member) { m.gpunode.Status.Hardware = nil }, false},
		"its modules are loaded, pods use it":  {func(m *member) { m.gpunode.Status.Hardware.LoadedDriver = "580.1" }, false},
		"the agent has the driver open":        {func(m *member) { m.gpunode.Status.Agent = &v1alpha1.AgentStatus{BootID: "b", DriverVersion: "580.1"} }, false},
		"the agent had it before the boot":     {func(m *member) { m.gpunode.Status.Agent = &v1alpha1.AgentStatus{BootID: "a", DriverVersion: "580.1"} }, true},
		"its driver runs, and the agent fails": {func(m *member) { m.gpunode.Status.Components[0].State = v1alpha1.ComponentReady }, false},
		"its driver is starting":               {func(m *member) { m.gpunode.Status.Phase = v1alpha1.PhaseDriverInstalling }, false},
	}
	for name, test := range tests {
		m := member{node: controllertest.ServingNode("n"), gpunode: &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{
			Phase: v1alpha1.PhaseFailed, Hardware: &v1alpha1.HardwareStatus{BootID: "b"}, Components: []v1alpha1.ComponentStatus{failed},
		}}}
		test.change(&m)
		if got := m.rolloutNode().Down; got != test.down {
			t.Errorf("%s: down %t", name, got)
		}
	}
}

// TestDownNodeIsGrantedItsDriverAlone checks that a node that serves no GPUs gets its driver while upgrades are not automatic, and keeps its MIG mode.
func TestDownNodeIsGrantedItsDriverAlone(t *testing.T) {
	t.Parallel()
	old := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "old"}
	objects := freshCluster()
	policy, gpunode := objects[0].(*v1alpha1.ClusterPolicy), objects[3].(*v1alpha1.GPUNode)
	policy.Spec.Upgrade.Auto = new(false)
	policy.Spec.NodeAgent.Pools = []v1alpha1.NodePool{{Name: "sliced", MIGMode: v1alpha1.MIGEnabled}}
	gpunode.Spec = v1alpha1.GPUNodeSpec{Driver: old, AgentPool: "sliced"}
	gpunode.Status.Phase, gpunode.Status.LastGoodDriver, gpunode.Status.Validated = v1alpha1.PhaseFailed, old, &v1alpha1.Validated{BootID: "a", Digest: "old"}
	c := controllertest.NewClient(t, objects...)
	passes(t, newReconciler(t, c))
	if got := grantOf(t, c, "n"); got.Driver.Digest == "old" || got.MIGMode != "" {
		t.Errorf("granted %+v with MIG mode %q", got.Driver, got.MIGMode)
	}
}

// TestDriverInUseIsGrantedADrain checks that the rollout grants the drain of a node whose driver's pod cannot start under load where the policy allows it,
// and takes the grant back when the pod runs or has been replaced.
func TestDriverInUseIsGrantedADrain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		auto           bool
		status, before string
		want           string
	}{
		"automatic":                    {true, "pod", "", "pod"},
		"not automatic":                {false, "pod", "", ""},
		"granted before it was paused": {false, "pod", "pod", "pod"},
		"the pod runs":                 {true, "", "pod", ""},
		"the pod was replaced":         {false, "other", "pod", ""},
	} {
		objects := freshCluster()
		gpunode := objects[3].(*v1alpha1.GPUNode)
		c := controllertest.NewClient(t, objects...)
		passes(t, newReconciler(t, c)) // grants the driver
		granted := grantOf(t, c, "n").Driver
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(gpunode), gpunode); err != nil {
			t.Fatal(err)
		}
		gpunode.Spec.DriverRestart, gpunode.Status.DriverRestart = test.before, test.status
		gpunode.Status.Phase, gpunode.Status.LastGoodDriver = v1alpha1.PhaseFailed, granted
		gpunode.Status.Validated = &v1alpha1.Validated{BootID: "b", Digest: granted.Digest}
		status := gpunode.Status
		if err := c.Update(t.Context(), gpunode); err != nil {
			t.Fatal(err)
		}
		gpunode.Status = status
		if err := c.Status().Update(t.Context(), gpunode); err != nil {
			t.Fatal(err)
		}
		policy := readPolicy(t, c)
		policy.Spec.Upgrade.Auto = &test.auto
		if err := c.Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		passes(t, newReconciler(t, c))
		if got := grantOf(t, c, "n").DriverRestart; got != test.want {
			t.Errorf("%s: granted the drain for %q, want %q", name, got, test.want)
		}
	}
}
