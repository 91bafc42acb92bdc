package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// refuse makes the API server refuse reads, and patches, of the objects and lists that the functions report; nil: none.
func (c *testCluster) refuse(reads, writes func(any) bool) {
	c.Helper()
	c.use(controllertest.Refuse(c.Cluster, reads, writes), c)
}

// What cannot be read is named in the error, and nothing is written: a decision from half of a node's objects could be wrong.
func TestNothingIsWrittenOfANodeThatCannotBeRead(t *testing.T) {
	tests := map[string]struct {
		reads func(any) bool
		// without are a cluster without a ClusterPolicy, and one without the GPUNode.
		withoutPolicy, withoutGPUNode bool
		want                          string
	}{
		"the policy":                           {reads: controllertest.IsA[*v1alpha1.ClusterPolicy](), want: "read ClusterPolicy"},
		"the GPUNode":                          {reads: controllertest.IsA[*v1alpha1.GPUNode](), want: "read GPUNode n"},
		"the Node":                             {reads: controllertest.IsA[*corev1.Node](), want: "read node n"},
		"the Node of no GPUNode":               {reads: controllertest.IsA[*corev1.Node](), withoutGPUNode: true, want: "read node n"},
		"the Node in a cluster without policy": {reads: controllertest.IsA[*corev1.Node](), withoutPolicy: true, want: "read node n"},
		"the pods":                             {reads: controllertest.IsA[*corev1.PodList](), want: "list pods on node n"},
		"the DaemonSet of the driver":          {reads: controllertest.IsA[*appsv1.DaemonSet](), want: "read DaemonSet tessera-driver-placed"},
		"the taint":                            {reads: controllertest.IsA[*resourceapi.DeviceTaintRule](), want: "read taint of node n"},
		"the claims of users":                  {reads: controllertest.IsA[*resourceapi.ResourceClaimList](), want: "list claims of pool n-gpu.tessera.dev"},
		"the validation":                       {reads: controllertest.IsA[*resourceapi.ResourceClaim](), want: "read validation of node n"},
		"the other nodes, for the budget":      {reads: controllertest.IsA[*v1alpha1.GPUNodeList](), want: "list GPUNodes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gpunode := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonDraining, 0)
			gpunode.Spec.Driver = nil
			c := newTestCluster(t, v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}, []*v1alpha1.GPUNode{gpunode})
			node := c.Node("n")
			node.Labels[v1alpha1.LabelDriver] = "placed"
			if err := c.Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			if test.withoutPolicy {
				c.abandon()
			}
			if test.withoutGPUNode {
				if err := c.Delete(t.Context(), gpunode); err != nil {
					t.Fatal(err)
				}
			}
			c.refuse(test.reads, nil)
			c.Writes = 0
			if _, err := c.r.Reconcile(t.Context(), trigger.Request("n")); !errors.Is(err, controllertest.ErrRefused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			if c.Writes > 0 {
				t.Errorf("%d writes", c.Writes)
			}
		})
	}
}

// Labels of a node that cannot be written are an error, and the next reconcile writes them.
func TestGPULabelsAreWrittenAfterARefusal(t *testing.T) {
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n")})
	c.refuse(nil, controllertest.IsA[*corev1.Node]())
	if _, err := c.r.Reconcile(t.Context(), trigger.Request("n")); !errors.Is(err, controllertest.ErrRefused) || !strings.Contains(err.Error(), "label node n") {
		t.Errorf("got error %v", err)
	}
	c.refuse(nil, nil)
	if c.step("n"); c.Node("n").Labels[v1alpha1.LabelPresent] != "true" {
		t.Errorf("labels %v", c.Node("n").Labels)
	}
}

// A driver that a node runs is granted only after it was recorded as good: otherwise a crash between the two would leave a node in service without a driver
// to return to.
func TestDriverIsNotAdoptedBeforeItIsRecorded(t *testing.T) {
	gpunode := controllertest.FaultyNode("n")
	gpunode.Spec.Driver, gpunode.Status.LastGoodDriver = nil, nil
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{gpunode})
	c.refuse(nil, controllertest.IsA[*v1alpha1.GPUNode]())
	o := &nodeObservation{Observation: nodestate.Observation{GPUNode: c.GPUNode("n")}}
	d := phase.Decision{Action: phase.Adopt, Good: true, Driver: &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "d"}}
	if err := (nodeStep{Reconciler: c.r, observation: o, decision: d}).perform(t.Context()); !errors.Is(err, controllertest.ErrRefused) || !strings.Contains(err.Error(), "write status of GPUNode n") {
		t.Errorf("got error %v", err)
	}
	if got := c.GPUNode("n"); got.Spec.Driver != nil || c.Writes > 0 {
		t.Errorf("the spec is %+v after %d writes", got.Spec, c.Writes)
	}
}

// Without a ClusterPolicy a GPU stays held as long as its status cannot be written, and monitoring stays away as long as the Node cannot be written.
func TestWithoutAPolicyARefusedWriteIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		writes func(any) bool
		want   string
	}{
		"the status": {controllertest.IsA[*v1alpha1.GPUNode](), "write status of GPUNode n"},
		"the labels": {controllertest.IsA[*corev1.Node](), "label node n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonDraining, 0)})
			c.abandon()
			node := c.Node("n")
			delete(node.Labels, v1alpha1.LabelReady)
			if err := c.Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			c.refuse(nil, test.writes)
			if _, err := c.r.Reconcile(t.Context(), trigger.Request("n")); !errors.Is(err, controllertest.ErrRefused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			if now := c.GPUNode("n"); len(now.Spec.Remediations) != 1 || c.Node("n").Labels[v1alpha1.LabelReady] != "" {
				t.Errorf("orders %+v, labels of the node %v", now.Spec.Remediations, c.Node("n").Labels)
			}
			c.refuse(nil, nil)
			for range 4 {
				c.step("n")
			}
			if now := c.GPUNode("n"); len(now.Spec.Remediations) > 0 || c.Node("n").Labels[v1alpha1.LabelReady] != "true" {
				t.Errorf("after the refusal: orders %+v, labels of the node %v", now.Spec.Remediations, c.Node("n").Labels)
			}
		})
	}
}

// A GPUNode whose Node does not exist is Absent with a policy, and without one its GPUs are released. No Node is written.
func TestGPUNodeWithoutANode(t *testing.T) {
	for name, policy := range map[string]bool{"with a policy": true, "without a policy": false} {
		t.Run(name, func(t *testing.T) {
			c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonDraining, 0)})
			if err := c.Delete(t.Context(), c.Node("n")); err != nil {
				t.Fatal(err)
			}
			if !policy {
				c.abandon()
			}
			c.refuse(nil, controllertest.IsA[*corev1.Node]())
			var now *v1alpha1.GPUNode
			for range 4 {
				now = c.step("n")
			}
			if s := now.Status; policy && (s.Phase != v1alpha1.PhaseAbsent || s.Reason != phase.ReasonNodeGone) {
				t.Errorf("phase %s, reason %s: %s", s.Phase, s.Reason, s.Message)
			}
			if !policy && len(now.Spec.Remediations) > 0 {
				t.Errorf("orders %+v", now.Spec.Remediations)
			}
		})
	}
}

// Without a ClusterPolicy the labels of Node Feature Discovery create no GPUNode.
func TestWithoutAPolicyNoGPUNodeIsCreated(t *testing.T) {
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{nfdLabels + "10de.present": "true"}}})
	c.abandon()
	for _, want := range []bool{false, true} {
		if _, err := c.r.Reconcile(t.Context(), trigger.Request("n")); err != nil {
			t.Fatal(err)
		}
		if got := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &v1alpha1.GPUNode{}) == nil; got != want {
			t.Errorf("a GPUNode was created: %t, want %t", got, want)
		}
		if err := c.Create(t.Context(), &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}); !want && err != nil {
			t.Fatal(err)
		}
	}
}

// A validation without a faulted GPU needs the GPU's UUID. The ResourceSlices are read once for an agent; while they cannot be read, no claim is created and
// the node's message has the reason.
func TestValidationReadsTheResourceSlicesOnce(t *testing.T) {
	gpunode := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 79, "Reboot"))
	gpunode.Status.Validated = nil
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllertest.Namespace}}
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{gpunode}, namespace)
	claim := func() *resourceapi.ResourceClaim {
		o := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: action.ValidationName("n", action.PartGPUs)}}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return nil
		}
		return o
	}
	refuses := true
	c.use(c, interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, base client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if refuses {
				return controllertest.ErrRefused
			}
			return base.List(ctx, list, options...)
		},
	}))
	for range 2 {
		if _, err := c.r.Reconcile(t.Context(), trigger.Request("n")); !errors.Is(err, controllertest.ErrRefused) {
			t.Fatalf("got error %v", err)
		}
	}
	if m := c.GPUNode("n").Status.Message; claim() != nil || !strings.Contains(m, "list ResourceSlices of node n: refused") {
		t.Errorf("a claim was created: %t, the node's message is %q", claim() != nil, m)
	}
	refuses, c.SliceLists = false, 0
	for range 2 {
		c.step("n")
		created := claim()
		if created == nil {
			t.Fatalf("no claim was created: %s", c.GPUNode("n").Status.Message)
		}
		if got := created.Spec.Devices.Requests[0].Exactly.Selectors; len(got) != 1 || !strings.Contains(got[0].CEL.Expression, controllertest.GPU(t, "n", 0).UUID) {
			t.Errorf("the claim selects %+v", got)
		}
		pod := &corev1.Pod{ObjectMeta: created.ObjectMeta}
		if err := errors.Join(c.Delete(t.Context(), created), c.Delete(t.Context(), pod)); err != nil {
			t.Fatal(err)
		}
	}
	if c.SliceLists != 1 {
		t.Errorf("ResourceSlices were listed %d times, want once", c.SliceLists)
	}
}
