package policy

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/render"
)

// readPolicy reads the ClusterPolicy.
func readPolicy(t *testing.T, c client.Client) *v1alpha1.ClusterPolicy {
	t.Helper()
	policy := &v1alpha1.ClusterPolicy{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
		t.Fatal(err)
	}
	return policy
}

// degraded returns the reason and the message of the condition Degraded, separated by a colon; empty: it is not True.
func degraded(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionDegraded); c != nil && c.Status == metav1.ConditionTrue {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// An error of a pass names the object and the cause. What keeps the objects of the cluster from being written is in the condition Degraded, too, and the
// nodes are granted their drivers nevertheless; if nodes or their users are unknown, no node is.
func TestErrorsOfAPassNameTheObject(t *testing.T) {
	sandbox := func(p *v1alpha1.ClusterPolicy) {
		p.Spec.NodeAgent.Pools = []v1alpha1.NodePool{{Name: render.PoolSandbox, NodeSelector: *controllertest.InPool("x")}}
		p.Spec.SandboxWorkloads = v1alpha1.SandboxWorkloadsSpec{Enabled: true, NodeSelector: controllertest.InPool("y")}
	}
	tests := map[string]struct {
		reads            func(any) bool
		edit             func(*v1alpha1.ClusterPolicy)
		withoutNamespace bool
		err, degraded    string
		granted          bool
	}{
		"the claims of users": {reads: controllertest.IsA[*resourceapi.ResourceClaimList](), err: "list claims of pool n-gpu.tessera.dev: refused"},
		"an operand": {
			reads: controllertest.IsA[*appsv1.Deployment](), err: "read Deployment tessera-scheduler: refused",
			degraded: "ObjectsNotWritten: read Deployment tessera-scheduler: refused", granted: true,
		},
		"the DaemonSets": {reads: controllertest.IsA[*appsv1.DaemonSet](), err: "read DaemonSet tessera-discovery: refused", granted: true},
		"the installer's namespace": {
			withoutNamespace: true, err: "read namespace tessera-system", degraded: "ObjectsNotWritten: read namespace tessera-system", granted: true,
		},
		"a pool with a reserved name": {
			edit: sandbox, err: "pool sandbox: the name is reserved for sandboxWorkloads",
			degraded: "ObjectsNotWritten: render tessera-node: pool sandbox: the name is reserved for sandboxWorkloads; use another name", granted: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for _, o := range freshCluster() {
				if policy, is := o.(*v1alpha1.ClusterPolicy); is && test.edit != nil {
					test.edit(policy)
				}
				if _, is := o.(*corev1.Namespace); !is || !test.withoutNamespace {
					objects = append(objects, o)
				}
			}
			base := controllertest.NewClient(t, objects...)
			r := newReconciler(t, controllertest.Refuse(base, test.reads, nil))
			if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got error %v, want %q", err, test.err)
			}
			if got := degraded(readPolicy(t, base).Status.Conditions); !strings.HasPrefix(got, test.degraded) || got != "" && test.degraded == "" {
				t.Errorf("Degraded is %q, want %q", got, test.degraded)
			}
			node := &v1alpha1.GPUNode{}
			if err := base.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil || (node.Spec.Driver != nil) != test.granted {
				t.Errorf("error %v, granted %+v", err, node.Spec)
			}
		})
	}
}

// Whether discovery has run everywhere is unknown, and the policy does not become Ready, while what it depends on cannot be read; the error names it.
func TestDiscoveryThatCannotBeJudged(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reads    func(any) bool
		operator corev1.NodeSelectorOperator
		want     string
	}{
		"the DaemonSet":    {controllertest.IsA[*appsv1.DaemonSet](), corev1.NodeSelectorOpExists, "read DaemonSet tessera-discovery: refused"},
		"the nodes":        {controllertest.IsA[*corev1.NodeList](), corev1.NodeSelectorOpExists, "list nodes: refused"},
		"the pods":         {controllertest.IsA[*corev1.PodList](), corev1.NodeSelectorOpExists, "list pods of DaemonSet tessera-discovery: refused"},
		"a wrong affinity": {nil, "Resembles", "read the affinity of DaemonSet tessera-discovery"},
	}
	for name, test := range tests {
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: render.OperandDiscovery}}
		set.Status.DesiredNumberScheduled = 1
		set.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: test.operator}}}},
		}}}
		lost := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		c := controllertest.Refuse(controllertest.NewPlainClient(t, set, lost), test.reads, nil)
		p := &pass{Catalog: &catalog.Catalog{Policy: &v1alpha1.ClusterPolicy{}}, objects: []client.Object{set}}
		text, err := New(Config{Cluster: action.Cluster{Client: c}}).unavailableOperand(t.Context(), p)
		if err == nil || !strings.Contains(err.Error(), test.want) || text != "" {
			t.Errorf("%s: error %v, text %q, want %q", name, err, text, test.want)
		}
	}
}

// A preview fails where it would be wrong: without a ClusterPolicy, and when nodes, policies or claims cannot be read.
func TestPreviewOfAClusterThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reads         func(any) bool
		withoutPolicy bool
		want          string
	}{
		"no policy":         {withoutPolicy: true, want: "there is no ClusterPolicy default"},
		"the NVIDIADrivers": {reads: controllertest.IsA[*v1alpha1.NVIDIADriverList](), want: "list NVIDIADrivers: refused"},
		"the nodes":         {reads: controllertest.IsA[*corev1.NodeList](), want: "list nodes: refused"},
		"the claims":        {reads: controllertest.IsA[*resourceapi.ResourceClaimList](), want: "list claims of pool n-gpu.tessera.dev: refused"},
	} {
		objects := freshCluster()
		if test.withoutPolicy {
			objects = objects[1:]
		}
		c := controllertest.Refuse(controllertest.NewPlainClient(t, objects...), test.reads, nil)
		images := render.Images{Node: "node:v1", Driver: "driver", DriverVersion: "580.1"}
		preview, err := PreviewEdit(t.Context(), c, controllertest.Namespace, images, Edit{})
		if err == nil || !strings.Contains(err.Error(), test.want) || preview.Plans != nil {
			t.Errorf("%s: error %v, plans %v, want %q", name, err, preview.Plans, test.want)
		}
	}
	// A list of claims of all pools would be empty, which is a wrong result.
	edited := &editedClient{Client: controllertest.NewPlainClient(t)}
	if err := edited.List(t.Context(), &resourceapi.ResourceClaimList{}); err == nil || !strings.Contains(err.Error(), "a filter by one pool is required") {
		t.Errorf("claims of all pools: got error %v", err)
	}
}

// A status that cannot be written is an error, names its policy, and is written by the next pass.
func TestStatusThatCannotBeWritten(t *testing.T) {
	objects := append(freshCluster(), &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "own"}})
	c := controllertest.NewClient(t, objects...)
	refuses := true
	r := newReconciler(t, controllertest.Refuse(c, nil, func(o any) bool {
		_, policy := o.(*v1alpha1.ClusterPolicy)
		_, driver := o.(*v1alpha1.NVIDIADriver)
		return refuses && (policy || driver)
	}))
	_, err := r.Reconcile(t.Context(), ctrl.Request{})
	for _, want := range []string{"write status of ClusterPolicy default: refused", "write status of NVIDIADriver own: refused"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	refuses = false
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil || readPolicy(t, c).Status.ObservedGeneration != 1 {
		t.Errorf("error %v, status %+v", err, readPolicy(t, c).Status)
	}
}
