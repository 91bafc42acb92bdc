package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/render"
)

// gpuNode returns a Node of a pool that was never in service, and its GPUNode.
func gpuNode(name, pool, os string) []client.Object {
	node := controllertest.ServingNode(name)
	node.Labels = map[string]string{"pool": pool}
	return []client.Object{node, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.GPUNodeStatus{
		Hardware: &v1alpha1.HardwareStatus{BootID: "b", GPUs: 2, OS: os, Kernel: "6.8", Architecture: "amd64"},
	}}}
}

// ownDriver returns an NVIDIADriver for a pool.
func ownDriver(name, pool string) *v1alpha1.NVIDIADriver {
	return &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}, Spec: v1alpha1.NVIDIADriverSpec{NodeSelector: controllertest.InPool(pool)}}
}

// passes performs two passes: the second has what the first one wrote.
func passes(t *testing.T, r *Reconciler) {
	t.Helper()
	for range 2 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
	}
}

func readDriver(t *testing.T, c client.Client, name string) *v1alpha1.NVIDIADriver {
	t.Helper()
	driver := &v1alpha1.NVIDIADriver{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, driver); err != nil {
		t.Fatal(err)
	}
	return driver
}

func grantOf(t *testing.T, c client.Client, name string) v1alpha1.GPUNodeSpec {
	t.Helper()
	node := &v1alpha1.GPUNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	return node.Spec
}

// Each operating system and each version has a DaemonSet, and each NVIDIADriver a status about its nodes. A driver that cannot be rendered is reported
// once, in the ClusterPolicy and in its NVIDIADriver; its nodes wait, and all others are granted theirs. A pass without a change writes nothing.
func TestDriversOfACluster(t *testing.T) {
	broken := ownDriver("broken", "broken")
	broken.Spec.RepoConfig = "mirror"
	own := ownDriver("own", "own")
	own.Spec.Version = "575.2"
	objects := slices.Concat(freshCluster()[:2], []client.Object{broken, own, ownDriver("unused", "none")},
		gpuNode("a", "", "ubuntu22.04"), gpuNode("b", "", "ubuntu24.04"), gpuNode("c", "own", "ubuntu24.04"), gpuNode("d", "broken", "ubuntu24.04"), gpuNode("e", "broken", "ubuntu24.04"))
	c, writes := controllertest.NewClient(t, objects...), 0
	passes(t, newReconciler(t, c))
	r := newReconciler(t, controllertest.Refuse(c, nil, func(o any) bool { writes++; t.Logf("%T is written", o); return false }))
	if passes(t, r); writes > 0 {
		t.Errorf("%d writes without a change", writes)
	}
	sets := &appsv1.DaemonSetList{}
	if err := c.List(t.Context(), sets, client.MatchingLabels{render.LabelName: render.OperandDriver}); err != nil || len(sets.Items) != 3 {
		t.Errorf("%d DaemonSets of drivers, error %v, want 3", len(sets.Items), err)
	}
	for name, owner := range map[string]string{"a": catalog.PolicyOwner, "b": catalog.PolicyOwner, "c": "own", "d": "", "e": ""} {
		if got := grantOf(t, c, name).Driver; owner == "" && got != nil || owner != "" && (got == nil || got.Owner != owner) {
			t.Errorf("node %s is granted %+v, want a driver of %q", name, got, owner)
		}
	}
	const missing = "ConfigMap tessera-system/mirror"
	for name, got := range map[string]string{"ClusterPolicy": degraded(readPolicy(t, c).Status.Conditions), "broken": degraded(readDriver(t, c, "broken").Status.Conditions)} {
		if !strings.HasPrefix(got, "DriverUnknown: ") || strings.Count(got, missing) != 1 {
			t.Errorf("%s is Degraded because of %q, want %s", name, got, missing)
		}
	}
	for name, want := range map[string]struct {
		nodes  int32
		reason string
	}{"own": {1, "NodesNotReady"}, "broken": {2, "DriverUnknown"}, "unused": {0, "NoGPUNodes"}} {
		s := readDriver(t, c, name).Status
		ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
		if s.Nodes.Total != want.nodes || s.ObservedGeneration != 1 || ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != want.reason {
			t.Errorf("%s: %d nodes, generation %d, Ready %+v, want %+v", name, s.Nodes.Total, s.ObservedGeneration, ready, want)
		}
	}
}

// Nothing is granted to a node that two NVIDIADrivers select, or whose label refuses operands. Both NVIDIADrivers name the node, and neither counts it.
func TestNodesThatAreGrantedNothing(t *testing.T) {
	out := gpuNode("out", "", "ubuntu24.04")
	out[0].(*corev1.Node).Labels[v1alpha1.LabelOperands] = "false"
	objects := slices.Concat(freshCluster()[:2], []client.Object{ownDriver("one", "both"), ownDriver("two", "both")}, gpuNode("both", "both", "ubuntu24.04"), out)
	c := controllertest.NewClient(t, objects...)
	passes(t, newReconciler(t, c))
	for _, name := range []string{"both", "out"} {
		if got := grantOf(t, c, name); got.Driver != nil || got.AgentPool != "" {
			t.Errorf("node %s is granted %+v", name, got)
		}
	}
	for _, name := range []string{"one", "two"} {
		s := readDriver(t, c, name).Status
		if got := degraded(s.Conditions); !slices.Equal(s.Conflicts, []string{"both"}) || s.Nodes.Total != 0 || !strings.HasPrefix(got, "Conflict: node both: NVIDIADrivers one, two") {
			t.Errorf("NVIDIADriver %s: conflicts %q, %d nodes, Degraded %q", name, s.Conflicts, s.Nodes.Total, got)
		}
	}
}

// While a rollout is paused, a node in service keeps its driver, the plan counts it, and the policy reports the pause. After the pause it is granted the
// new driver.
func TestPausedRolloutGrantsNothing(t *testing.T) {
	old := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "old"}
	for name, own := range map[string]bool{"of the ClusterPolicy": false, "of an NVIDIADriver": true} {
		t.Run(name, func(t *testing.T) {
			objects := freshCluster()
			gpunode := objects[3].(*v1alpha1.GPUNode)
			gpunode.Spec = v1alpha1.GPUNodeSpec{Driver: old, AgentPool: "default"}
			gpunode.Status.Phase, gpunode.Status.LastGoodDriver, gpunode.Status.Validated = v1alpha1.PhaseReady, old, &v1alpha1.Validated{BootID: "b", Digest: "old"}
			object, paused := objects[0], map[string]string{v1alpha1.AnnotationPause: "true"}
			if own {
				driver := ownDriver("own", "")
				driver.Spec.NodeSelector = &metav1.LabelSelector{}
				object, objects = driver, append(objects, driver)
			}
			object.SetAnnotations(paused)
			c := controllertest.NewClient(t, objects...)
			r := newReconciler(t, c)
			passes(t, r)
			plan, conditions := readPolicy(t, c).Status.Plan, readPolicy(t, c).Status.Conditions
			if own {
				plan, conditions = readDriver(t, c, "own").Status.Plan, readDriver(t, c, "own").Status.Conditions
			}
			ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
			if got := grantOf(t, c, "n"); got.Driver.Digest != "old" || plan == nil || plan.Nodes != 1 || ready.Status != metav1.ConditionFalse {
				t.Errorf("paused: granted %+v, plan %+v, Ready %+v", got.Driver, plan, ready)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
			object.SetAnnotations(nil)
			if err := c.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			if passes(t, r); grantOf(t, c, "n").Driver.Digest == "old" {
				t.Errorf("after the pause: granted %+v", grantOf(t, c, "n").Driver)
			}
		})
	}
}

// The rollout of an NVIDIADriver has the settings, pauses and progress of the NVIDIADriver; a pause of the ClusterPolicy pauses it, too, and without settings
// it has those of the ClusterPolicy.
func TestSettingsOfARollout(t *testing.T) {
	hour, minute := &metav1.Duration{Duration: time.Hour}, &metav1.Duration{Duration: time.Minute}
	upgrade := func(timeout *metav1.Duration) v1alpha1.UpgradePolicy {
		return v1alpha1.UpgradePolicy{Drain: v1alpha1.DrainSpec{Timeout: timeout}}
	}
	tests := map[string]struct {
		policy, driver    map[string]string
		upgrade           *v1alpha1.UpgradePolicy
		ofPolicy, ofOwn   time.Duration
		paused, ownPaused bool
		resumed           string
	}{
		"without settings": {ofPolicy: time.Hour, ofOwn: time.Hour},
		"with settings":    {upgrade: new(upgrade(minute)), ofPolicy: time.Hour, ofOwn: time.Minute},
		"both are paused": {
			policy: map[string]string{v1alpha1.AnnotationPause: "true"}, ofPolicy: time.Hour, ofOwn: time.Hour, paused: true, ownPaused: true,
		},
		"one is paused": {driver: map[string]string{v1alpha1.AnnotationPause: "true"}, ofPolicy: time.Hour, ofOwn: time.Hour, ownPaused: true},
		"one is resumed": {
			policy: map[string]string{v1alpha1.AnnotationResume: "p"}, driver: map[string]string{v1alpha1.AnnotationResume: "d"},
			ofPolicy: time.Hour, ofOwn: time.Hour, resumed: "d",
		},
	}
	for name, test := range tests {
		policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Annotations: test.policy}, Spec: v1alpha1.ClusterPolicySpec{Upgrade: upgrade(hour)}}
		policy.Status.Rollout = &v1alpha1.RolloutStatus{Reason: "policy"}
		other, own := ownDriver("other", "x"), ownDriver("own", "x")
		own.Annotations, own.Spec.Upgrade, own.Status.Rollout = test.driver, test.upgrade, &v1alpha1.RolloutStatus{Reason: "own"}
		p := newPass(catalog.New(policy, []v1alpha1.NVIDIADriver{*other, *own}))
		if f := p.rolloutFleet(catalog.PolicyOwner); f.Policy.Drain.Timeout.Duration != test.ofPolicy || f.Paused != test.paused || f.Status.Reason != "policy" || f.Resumed != test.policy[v1alpha1.AnnotationResume] {
			t.Errorf("%s: the rollout of the ClusterPolicy is %+v", name, f)
		}
		if f := p.rolloutFleet("own"); f.Policy.Drain.Timeout.Duration != test.ofOwn || f.Paused != test.ownPaused || f.Status.Reason != "own" || f.Resumed != test.resumed {
			t.Errorf("%s: the rollout of the NVIDIADriver is %+v", name, f)
		}
	}
}

// Where the cluster serves ServiceMonitors, those of the installer that are not rendered any more are deleted, and those of other programs stay.
func TestServiceMonitorsAreRemoved(t *testing.T) {
	monitor := func(name, manager string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(MonitorKind)
		u.SetNamespace(controllertest.Namespace)
		u.SetName(name)
		u.SetLabels(map[string]string{render.LabelManagedBy: manager})
		return u
	}
	objects := freshCluster()
	objects[0].(*v1alpha1.ClusterPolicy).Spec.DCGMExporter.Enabled = new(false)
	own, other := monitor("own", render.ManagedBy), monitor("other", "another program")
	c := controllertest.NewClient(t, append(objects, own, other)...)
	for _, serves := range []bool{false, true} {
		r := newReconciler(t, c)
		r.ServiceMonitors = serves
		passes(t, r)
		if gone := apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(own), monitor("own", ""))); gone != serves {
			t.Errorf("served %t: removed %t", serves, gone)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Errorf("a ServiceMonitor of another program: %v", err)
	}
}
