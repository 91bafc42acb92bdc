package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
	"github.com/tessera-gpu/tessera/installer/render"
)

const ownNamespace = "tessera-system"

// hospital is a cluster with nodes of two H100 each, in service, and a count of what is asked of its API server.
type hospital struct {
	*testing.T
	client.WithWatch
	r              *nodeReconciler
	events         *events.FakeRecorder
	writes, slices int
}

// newHospital makes it with these nodes, which may have faults, and more objects.
func newHospital(t *testing.T, spec v1alpha1.ClusterPolicySpec, nodes []*v1alpha1.GPUNode, more ...client.Object) *hospital {
	t.Helper()
	h := &hospital{T: t, events: events.NewFakeRecorder(100)}
	objects := append(more, &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}, Spec: spec})
	for _, node := range nodes {
		objects = append(objects, node, serving(node.Name), agentPod(node.Name))
		objects = append(objects, slicesOf(t, node.Name)...)
	}
	h.WithWatch = interceptor.NewClient(indexedClient(t, objects...), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, is := list.(*resourceapi.ResourceSliceList); is {
				h.slices++
			}
			return c.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			h.writes++
			return c.Patch(ctx, o, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			h.writes++
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	h.r = &nodeReconciler{
		Cluster: action.Cluster{Client: h, Live: h, Namespace: ownNamespace}, drainer: drainer{live: h, refused: newRefusedEvictions()},
		obstacles: NewObstacles(), recorder: h.events, metrics: m, pools: NewPools(),
	}
	return h
}

// step looks at a node once.
func (h *hospital) step(name string) *v1alpha1.GPUNode {
	h.Helper()
	if _, err := h.r.Reconcile(h.Context(), Request(name)); err != nil {
		h.Fatal(err)
	}
	node := &v1alpha1.GPUNode{}
	if err := h.Get(h.Context(), client.ObjectKey{Name: name}, node); err != nil {
		h.Fatal(err)
	}
	return node
}

// serving is a node in service.
func serving(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.LabelReady: "true", v1alpha1.LabelAgent: "default",
		}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: "b"}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func agentPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: "agent-" + node, UID: "agent", Labels: map[string]string{render.LabelName: "tessera-node"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}},
	}
}

// sickNode is a node whose driver is the host's and that has been proven, with faults.
func sickNode(name string, faults ...v1alpha1.GPUFault) *v1alpha1.GPUNode {
	at := metav1.NewTime(time.Now().Add(-time.Hour)).Rfc3339Copy()
	return &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.GPUNodeSpec{Driver: &v1alpha1.DesiredDriver{Source: v1alpha1.DriverHost}},
		Status: v1alpha1.GPUNodeStatus{
			Phase: v1alpha1.PhaseReady, LastGoodDriver: &v1alpha1.DesiredDriver{Source: v1alpha1.DriverHost}, Validated: &v1alpha1.Validated{BootID: "b", At: at},
			Hardware: &v1alpha1.HardwareStatus{BootID: "b", GPUs: 2, OS: "debian12", CDI: true, HostDriver: "580.1", LoadedDriver: "580.1"},
			Agent: &v1alpha1.AgentStatus{
				PodUID: "agent", BootID: "b", Accepted: true, DriverVersion: "580.1", GPUs: 2, Faults: faults,
			},
		},
	}
}

// gpuOf is a GPU of a node.
func gpuOf(t *testing.T, node string, index int) gpu.GPU {
	t.Helper()
	return machineNode(t, node).GPUs[index]
}

func machineNode(t *testing.T, name string) gpu.Node {
	t.Helper()
	machine, err := gputest.FindMachine("h100x2")
	if err != nil {
		t.Fatal(err)
	}
	node, err := machine.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// slicesOf are what the agent of a node publishes.
func slicesOf(t *testing.T, name string) []client.Object {
	t.Helper()
	pool, err := wire.Encode(machineNode(t, name), wire.Options{Driver: v1alpha1.DriverName, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.Monitor}}})
	if err != nil {
		t.Fatal(err)
	}
	var all []client.Object
	for i, s := range pool.Slices {
		all = append(all, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: v1alpha1.DriverName, NodeName: &name, SharedCounters: s.SharedCounters, Devices: s.Devices,
				Pool: resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	return all
}

// user is a pod with a claim that has a device of a node.
func user(name, node, device string) []client.Object {
	key := metav1.ObjectMeta{Namespace: "users", Name: name}
	pod := &corev1.Pod{ObjectMeta: key, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.UID, pod.OwnerReferences = types.UID("uid-of-"+name), []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: new(true)}}
	return []client.Object{pod, &resourceapi.ResourceClaim{ObjectMeta: key, Status: resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Driver: v1alpha1.DriverName, Pool: wire.PoolName(node, v1alpha1.DriverName), Device: device},
		}}},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}},
	}}}
}

// xid is a fault of a GPU.
func xid(t *testing.T, node string, index, number int, remedy string) v1alpha1.GPUFault {
	t.Helper()
	g := gpuOf(t, node, index)
	return v1alpha1.GPUFault{
		GPU: g.Name(), UUID: g.UUID, Signal: "xid", XID: int32(number), Severity: "Fatal", Remedy: remedy, BootID: "b",
		Since: metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy(),
	}
}

// In the mode Suggest, people read what would be done and which pods that costs, those of the sick GPU and of no other. It is said once: while nothing changes
// nothing is written, and nothing is read.
func TestSuggestionsCostNothing(t *testing.T) {
	sick, well := gpuOf(t, "n", 0), gpuOf(t, "n", 1)
	objects := append(user("training", "n", wire.DeviceName(gpu.Device{GPU: sick.Name(), Use: gpu.Use{Shape: gpu.Whole}})),
		user("neighbour", "n", wire.DeviceName(gpu.Device{GPU: well.Name(), Use: gpu.Use{Shape: gpu.Whole}}))...)
	h := newHospital(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{sickNode("n", xid(t, "n", 0, 95, "Reset"))}, objects...)
	node := h.step("n")
	if len(node.Status.Remedies) != 1 || node.Status.Remedies[0].Step != v1alpha1.RemedySuggested || node.Status.Remedies[0].GPU != sick.Name() {
		t.Fatalf("remedies are %+v", node.Status.Remedies)
	}
	said := node.Status.Remedies[0].Message
	if !strings.Contains(said, "XID 95") || !strings.Contains(said, "users/training") || strings.Contains(said, "neighbour") {
		t.Errorf("it says %q", said)
	}
	if c := node.Status.Conditions; !slices.ContainsFunc(c, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionGPUsHealthy && c.Status == metav1.ConditionFalse
	}) {
		t.Errorf("conditions are %+v", c)
	}
	if len(node.Spec.Remedies) > 0 {
		t.Errorf("it ordered %+v", node.Spec.Remedies)
	}
	told := drainEvents(h.events)
	if !slices.ContainsFunc(told, func(e string) bool { return strings.Contains(e, "RemediationSuggested") }) {
		t.Errorf("events are %q", told)
	}
	h.writes, h.slices = 0, 0
	for range 3 {
		h.step("n")
	}
	if h.writes+h.slices > 0 {
		t.Errorf("at rest it wrote %d times and read slices %d times", h.writes, h.slices)
	}
}

func drainEvents(r *events.FakeRecorder) []string {
	var all []string
	for {
		select {
		case e := <-r.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// Of the sick GPUs of a cluster as many are taken out as the policy says, the others wait and say for what.
func TestBudgetCountsTheCluster(t *testing.T) {
	act := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
	h := newHospital(t, act, []*v1alpha1.GPUNode{
		sickNode("n1", xid(t, "n1", 0, 95, "Reset"), xid(t, "n1", 1, 95, "Reset")), sickNode("n2", xid(t, "n2", 0, 95, "Reset")),
	})
	n1, n2 := h.step("n1"), h.step("n2")
	if len(n1.Spec.Remedies) != 1 || len(n2.Spec.Remedies) != 0 {
		t.Fatalf("out of service are %+v and %+v, want one GPU", n1.Spec.Remedies, n2.Spec.Remedies)
	}
	waits := append(slices.Clone(n1.Status.Remedies), n2.Status.Remedies...)
	waits = slices.DeleteFunc(waits, func(s v1alpha1.RemedyStatus) bool { return s.Reason != remediation.ReasonBudget })
	if len(waits) != 2 {
		t.Errorf("%d GPUs wait for a place: %+v", len(waits), waits)
	}
	if asked := h.r.waitingNodes(t.Context()); !slices.Equal(asked, []string{"n1", "n2"}) {
		t.Errorf("when a place is free, %q are looked at", asked)
	}
}

// A node with a sick GPU is proven by the others, and says so; one all of whose GPUs are sick says that, and does not wait for a proof that cannot be made.
func TestProofLeavesSickGPUsOut(t *testing.T) {
	claim := func(h *hospital) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{}
		if err := h.Get(t.Context(), client.ObjectKey{Namespace: ownNamespace, Name: action.ValidationName("n", action.PartGPUs)}, c); err != nil {
			return nil
		}
		return c
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace, Labels: map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"}}}
	unproven := func(faults ...v1alpha1.GPUFault) *v1alpha1.GPUNode {
		node := sickNode("n", faults...)
		node.Status.Validated = nil
		return node
	}
	h := newHospital(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{unproven(xid(t, "n", 0, 79, "Reboot"))}, namespace)
	node, made := h.step("n"), claim(h)
	if made == nil {
		t.Fatalf("no claim was made; the node is %+v", node.Status)
	}
	uuid := gpuOf(t, "n", 0).UUID
	if s := made.Spec.Devices.Requests[0].Exactly.Selectors; len(s) != 1 || !strings.HasPrefix(s[0].CEL.Expression, "!(") || !strings.Contains(s[0].CEL.Expression, uuid) {
		t.Errorf("it selects by %+v", s)
	}
	if m := node.Status.Message; !strings.Contains(m, gpuOf(t, "n", 0).Name()+" (XID 79)") {
		t.Errorf("the node says %q", m)
	}
	h = newHospital(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{unproven(xid(t, "n", 0, 79, "Reboot"), xid(t, "n", 1, 79, "Reboot"))}, namespace)
	for range 2 {
		_, _ = h.r.Reconcile(t.Context(), Request("n"))
	}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
		t.Fatal(err)
	}
	if claim(h) != nil || !strings.Contains(node.Status.Message, "none of its 2 GPUs is well") {
		t.Errorf("the node says %q, and a claim was made: %v", node.Status.Message, claim(h) != nil)
	}
}

// What is said about remediation decides what becomes of a sick GPU.
func TestFieldsDecideAboutSickGPUs(t *testing.T) {
	minute := &metav1.Duration{Duration: time.Minute}
	next := func(s v1alpha1.ClusterPolicySpec, fault string, change func(*remediation.Observed)) remediation.Decision {
		o := remediation.Observed{
			Now: time.Now(), GPU: "g", Policy: policies{spec: s}.catalog().remediation(&nodeObservation{Observed: phase.Observed{Wanted: phase.Wanted{Managed: true}}}),
			BootID: "b", Speaks: true, Granted: true,
			Faults: []v1alpha1.GPUFault{{GPU: "g", Signal: "xid", XID: 95, Severity: "Fatal", Remedy: fault, BootID: "b", Since: metav1.Now()}},
		}
		change(&o)
		return remediation.Next(o)
	}
	failed := func(o *remediation.Observed) {
		o.Status = &v1alpha1.RemedyStatus{GPU: "g", ID: "i", Step: v1alpha1.RemedyResetGPU, Attempts: 1, Faults: []string{"XID 95"}}
		o.Order = &v1alpha1.Remedy{GPU: "g", ID: "i", Step: v1alpha1.OrderReset}
		o.Agent = &v1alpha1.AgentRemedy{ID: "i", State: v1alpha1.RemedyFailed}
	}
	act := func(s *v1alpha1.ClusterPolicySpec) { s.Remediation.Mode = v1alpha1.RemediationAct }
	for _, f := range []struct {
		field  string
		change func(*v1alpha1.RemediationSpec)
		look   func(v1alpha1.ClusterPolicySpec) any
		want   any
	}{
		{"mode", func(r *v1alpha1.RemediationSpec) { r.Mode = v1alpha1.RemediationSuggest },
			func(s v1alpha1.ClusterPolicySpec) any { return next(s, "Reset", func(*remediation.Observed) {}).Action }, remediation.Wait},
		{"attempts", func(r *v1alpha1.RemediationSpec) { r.Attempts = new(int32(1)) },
			func(s v1alpha1.ClusterPolicySpec) any { return next(s, "Reset", failed).Status.Step }, v1alpha1.RemedyRebootRequested},
		{"reboot", func(r *v1alpha1.RemediationSpec) { r.Reboot = new(false) },
			func(s v1alpha1.ClusterPolicySpec) any {
				return next(s, "Reboot", func(*remediation.Observed) {}).Status.Step
			}, v1alpha1.RemedyReplace},
		{"drain.timeout", func(r *v1alpha1.RemediationSpec) { r.Drain.Timeout = minute }, func(s v1alpha1.ClusterPolicySpec) any {
			return next(s, "Reset", func(o *remediation.Observed) {
				o.Status = &v1alpha1.RemedyStatus{GPU: "g", ID: "i", Step: v1alpha1.RemedyDrain, Reason: remediation.ReasonDraining, Since: metav1.NewTime(o.Now.Add(-2 * time.Minute))}
				o.Order = &v1alpha1.Remedy{GPU: "g", ID: "i", Step: v1alpha1.OrderHold}
				o.Agent = &v1alpha1.AgentRemedy{ID: "i", State: v1alpha1.RemedyHolding, Prepared: 1}
				o.Drain.Holders = []string{"a/b"}
			}).Action
		}, remediation.Release},
		{"drain.waitTimeout", func(r *v1alpha1.RemediationSpec) { r.Drain.WaitTimeout = minute }, func(s v1alpha1.ClusterPolicySpec) any {
			return next(s, "Reset", func(o *remediation.Observed) {
				o.Drain.Waited, o.Faults[0].Since = []string{"a/b"}, metav1.NewTime(o.Now.Add(-2*time.Minute))
			}).Action
		}, remediation.Direct},
	} {
		t.Run(f.field, func(t *testing.T) {
			var spec v1alpha1.ClusterPolicySpec
			act(&spec)
			if before := f.look(spec); before == f.want {
				t.Fatalf("it is %v before the change, too", before)
			}
			f.change(&spec.Remediation)
			if after := f.look(spec); after != f.want {
				t.Errorf("got %v, want %v", after, f.want)
			}
		})
	}
	t.Run("maxParallel", func(t *testing.T) {
		for n, want := range map[int32]int{1: 1, 2: 2} {
			spec := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct, MaxParallel: &n}}
			h := newHospital(t, spec, []*v1alpha1.GPUNode{sickNode("n", xid(t, "n", 0, 95, "Reset"), xid(t, "n", 1, 95, "Reset"))})
			if got := len(h.step("n").Spec.Remedies); got != want {
				t.Errorf("with maxParallel %d, %d GPUs were taken out", n, got)
			}
		}
	})
}

// Who leaves a sick GPU is as the remediation's own drain says, whatever that of an upgrade says.
func TestRemediationDrainsDecideWhoLeaves(t *testing.T) {
	g := gpuOf(t, "n", 0)
	device := wire.DeviceName(gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.Whole}})
	alone, job := user("alone", "n", device), user("job", "n", device)
	alone[0].SetOwnerReferences(nil)
	job[0].SetLabels(map[string]string{"kind": "job"})
	scratch := user("scratch", "n", device)
	scratch[0].(*corev1.Pod).Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for _, f := range []struct {
		field  string
		change func(*v1alpha1.DrainSpec)
		want   string
	}{
		{"defaults", func(*v1alpha1.DrainSpec) {}, "job scratch;"},
		{"force", func(d *v1alpha1.DrainSpec) { d.Force = true }, "alone job scratch;"},
		{"deleteEmptyDir", func(d *v1alpha1.DrainSpec) { d.DeleteEmptyDir = new(false) }, "job;"},
		{"waitFor", func(d *v1alpha1.DrainSpec) {
			d.WaitFor = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "job"}}
		}, "job scratch;users/job"},
	} {
		t.Run(f.field, func(t *testing.T) {
			var spec v1alpha1.ClusterPolicySpec
			f.change(&spec.Remediation.Drain)
			node := sickNode("n", xid(t, "n", 0, 95, "Reset"))
			node.Spec.Remedies = []v1alpha1.Remedy{{GPU: g.Name(), ID: "i"}}
			h := newHospital(t, spec, []*v1alpha1.GPUNode{node}, slices.Concat(alone, job, scratch)...)
			cat := policies{spec: spec}.catalog()
			s, err := h.r.observe(t.Context(), cat, node)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.r.examine(t.Context(), cat, s, phase.Decision{}); err != nil {
				t.Fatal(err)
			}
			var leave []string
			for _, v := range s.patients[0].victims {
				leave = append(leave, v.Name)
			}
			if got := strings.Join(leave, " ") + ";" + strings.Join(s.patients[0].Drain.Waited, " "); got != f.want {
				t.Errorf("evicted and waited for are %q, want %q", got, f.want)
			}
		})
	}
}

// A pause by a person, and everything else that is being done with a node, is told in its own words.
func TestWhatStopsRemediation(t *testing.T) {
	paused := map[string]string{v1alpha1.AnnotationPauseRemediation: "true"}
	tests := map[string]struct {
		node   func(*v1alpha1.GPUNode)
		policy map[string]string
		want   string
	}{
		"the GPUNode": {node: func(n *v1alpha1.GPUNode) { n.Annotations = paused }, want: "GPUNode n"},
		"the policy":  {policy: paused, want: "ClusterPolicy default"},
		"a maintenance": {node: func(n *v1alpha1.GPUNode) {
			n.Spec.Maintenance = &v1alpha1.Maintenance{ID: "m", Operation: v1alpha1.OperationRemoval}
		}, want: "(Removal)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := sickNode("n", xid(t, "n", 0, 95, "Reset"))
			if test.node != nil {
				test.node(node)
			}
			h := newHospital(t, v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}, []*v1alpha1.GPUNode{node})
			if test.policy != nil {
				policy := &v1alpha1.ClusterPolicy{}
				if err := h.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
					t.Fatal(err)
				}
				policy.Annotations = test.policy
				if err := h.Update(t.Context(), policy); err != nil {
					t.Fatal(err)
				}
			}
			got := h.step("n")
			if len(got.Spec.Remedies) > 0 || len(got.Status.Remedies) != 1 || !strings.Contains(got.Status.Remedies[0].Message, test.want) {
				t.Errorf("orders %+v, remedies %+v", got.Spec.Remedies, got.Status.Remedies)
			}
		})
	}
}

// Who holds a sick GPU follows from what the agent publishes: a device that is not offered any more is nobody's, and while not everything is published, claims
// count as in use, and nobody is evicted.
func TestHoldersOfAGPU(t *testing.T) {
	g := gpuOf(t, "n", 0)
	device := wire.DeviceName(gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.Whole}})
	for name, test := range map[string]struct {
		lacks      bool
		holders    []string
		unreadable bool
	}{
		"all is published":         {holders: []string{"users/training"}},
		"a slice is not there yet": {lacks: true, unreadable: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHospital(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{sickNode("n", xid(t, "n", 0, 95, "Reset"))},
				append(user("training", "n", device), user("old", "n", "withdrawn")...)...)
			if test.lacks {
				if err := h.Delete(t.Context(), slicesOf(t, "n")[0]); err != nil {
					t.Fatal(err)
				}
			}
			cat, node := policies{}.catalog(), sickNode("n", xid(t, "n", 0, 95, "Reset"))
			node.Spec.Remedies = []v1alpha1.Remedy{{GPU: g.Name(), ID: "i"}}
			s, err := h.r.observe(t.Context(), cat, node)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.r.examine(t.Context(), cat, s, phase.Decision{}); err != nil {
				t.Fatal(err)
			}
			if d := s.patients[0].Drain; !slices.Equal(d.Holders, test.holders) || d.Unreadable != test.unreadable {
				t.Errorf("holders are %q, unreadable %t", d.Holders, d.Unreadable)
			}
			if victims := s.patients[0].victims; len(victims) != len(test.holders) {
				t.Errorf("victims are %+v", victims)
			}
		})
	}
}

// Where the driver is about to be swapped no reset is ordered; one that was ordered before is waited for, and the node says so.
func TestSwapAndReset(t *testing.T) {
	act := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
	at := func(order v1alpha1.RemedyOrder, reason string) *hospital {
		sick := inTreatment(t, v1alpha1.RemedyResetGPU, reason, 0)
		sick.Spec.Remedies[0].Step, sick.Status.Agent.Remedies[0].Prepared = order, 0
		if order == v1alpha1.OrderReset {
			sick.Status.Remedies[0].Attempts, sick.Status.Agent.Remedies[0].State = 1, v1alpha1.RemedyResetting
		}
		h := newHospital(t, act, []*v1alpha1.GPUNode{sick})
		node := h.node("n")
		delete(node.Labels, v1alpha1.LabelReady)
		node.Labels[v1alpha1.LabelDriver] = "another"
		if err := h.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		return h
	}
	swaps := func(h *hospital) bool {
		return h.Get(t.Context(), client.ObjectKey{Name: action.TaintRuleName("n")}, &resourceapi.DeviceTaintRule{}) == nil
	}
	h := at(v1alpha1.OrderHold, remediation.ReasonMakingRoom)
	for range 3 {
		if n := h.step("n"); len(n.Spec.Remedies) > 0 && n.Spec.Remedies[0].Step == v1alpha1.OrderReset {
			t.Fatalf("a reset is ordered: %+v, %s", n.Spec.Remedies, n.Status.Message)
		}
	}
	if !swaps(h) {
		t.Error("the swap does not begin")
	}
	h = at(v1alpha1.OrderReset, remediation.ReasonResetting)
	for range 3 {
		n := h.step("n")
		ready := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionReady)
		if swaps(h) || ready == nil || ready.Reason != phase.ReasonResetting || !strings.Contains(ready.Message, "is being reset") || n.Spec.Remedies[0].Step != v1alpha1.OrderReset {
			t.Fatalf("%+v, %+v", n.Spec, n.Status.Conditions)
		}
	}
}
