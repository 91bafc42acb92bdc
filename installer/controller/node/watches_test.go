package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// watched is a running manager with a Reconciler that records the nodes whose GPUNode it reads, and does nothing else.
type watched struct {
	*controllertest.Watches
	mutex sync.Mutex
	names map[string]bool
	// idle is done when every worker has a request of settle, so that none has an earlier one.
	idle *sync.WaitGroup
}

const (
	startRequest  = "start-"
	settleRequest = "settle-"
)

func newWatched(c *testCluster) *watched {
	w := &watched{names: map[string]bool{}}
	c.use(interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, base client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, is := o.(*v1alpha1.GPUNode); !is {
				return base.Get(ctx, key, o, options...)
			}
			w.reconciled(key.Name)
			o.SetDeletionTimestamp(new(metav1.Now()))
			return nil
		},
	}), c)
	w.Watches = controllertest.StartManager(c.T, c, c.r.SetUp)
	started := 0
	controllertest.Eventually(c.T, "started", func() bool {
		started++
		w.Create(controllertest.FaultyNode(startRequest + strconv.Itoa(started)))
		return w.any()
	})
	w.settle()
	return w
}

func (w *watched) reconciled(name string) {
	w.mutex.Lock()
	idle, settles := w.idle, strings.HasPrefix(name, settleRequest)
	if !settles {
		w.names[name] = true
	}
	w.mutex.Unlock()
	if settles {
		idle.Done()
		idle.Wait()
	}
}

// any reports whether a node was reconciled.
func (w *watched) any() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.names) > 0
}

// settle waits until all requests were served, and returns their nodes. The second round serves what was requested again meanwhile.
func (w *watched) settle() []string {
	for round := range 2 {
		idle := &sync.WaitGroup{}
		idle.Add(workers)
		w.mutex.Lock()
		w.idle = idle
		w.mutex.Unlock()
		for i := range workers {
			w.Create(controllertest.FaultyNode(fmt.Sprintf("%s%d-%d", settleRequest, round, i)))
		}
		idle.Wait()
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	names := slices.Sorted(maps.Keys(w.names))
	w.names = map[string]bool{}
	return names
}

// changed returns a copy of an object after an edit.
func changed[T interface {
	client.Object
	DeepCopy() T
}](object T, edit func(T)) T {
	now := object.DeepCopy()
	edit(now)
	return now
}

// A change reconciles the nodes that depend on it and no others: a policy and what it references all nodes, an object of one node that node, and a
// remediation that ends the nodes that wait for a place in the budget. What the kubelet writes all the time reconciles nothing.
func TestChangesReconcileTheNodesThatDependOnThem(t *testing.T) {
	waiting := controllertest.FaultyNode("waiting")
	waiting.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: "g", Reason: remediation.ReasonBudgetExhausted}}
	all := []string{"calm", "n", "waiting"}
	spec := v1alpha1.ClusterPolicySpec{Driver: v1alpha1.DriverSpec{RepoConfig: "mirror", SecretEnv: "proxy"}}
	c := newTestCluster(t, spec, []*v1alpha1.GPUNode{controllertest.FaultyNode("n"), controllertest.FaultyNode("calm"), waiting})
	w := newWatched(c)
	owned := metav1.ObjectMeta{Name: "o", Labels: map[string]string{action.LabelNode: "n"}, OwnerReferences: []metav1.OwnerReference{{Kind: "GPUNode", Name: "n"}}}
	node, policy, claim := controllertest.ServingNode("n"), &v1alpha1.ClusterPolicy{}, &resourceapi.ResourceClaim{ObjectMeta: owned}
	named := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	edited := func(m *corev1.ConfigMap) { m.Data = map[string]string{"a": "b"} }
	for _, test := range []struct {
		name   string
		report func()
		want   []string
	}{
		{"a GPUNode", func() { w.Create(controllertest.FaultyNode("n")) }, []string{"n"}},
		{"a remediation that ends", func() {
			w.Update(changed(controllertest.FaultyNode("n"), func(n *v1alpha1.GPUNode) { n.Spec.Remediations = []v1alpha1.Remediation{{GPU: "g"}} }), controllertest.FaultyNode("n"))
		}, []string{"n", "waiting"}},
		{"a label of a Node", func() { w.Update(node, changed(node, func(n *corev1.Node) { n.Labels["a"] = "b" })) }, []string{"n"}},
		{"a heartbeat of a Node", func() { w.Update(node, changed(node, func(n *corev1.Node) { n.ResourceVersion = "2" })) }, nil},
		{"a pod of an operand", func() { w.Delete(controllertest.AgentPod("n")) }, []string{"n"}},
		{"a pod of no node", func() { w.Create(&corev1.Pod{}) }, nil},
		{"a taint of a node's devices", func() { w.Delete(&resourceapi.DeviceTaintRule{ObjectMeta: owned}) }, []string{"n"}},
		{"a claim of a validation", func() {
			w.Update(claim, changed(claim, func(c *resourceapi.ResourceClaim) { c.Status.Allocation = &resourceapi.AllocationResult{} }))
		}, []string{"n"}},
		{"the spec of the ClusterPolicy", func() { w.Update(policy, changed(policy, func(p *v1alpha1.ClusterPolicy) { p.Generation++ })) }, all},
		{"the status of the ClusterPolicy", func() {
			w.Update(policy, changed(policy, func(p *v1alpha1.ClusterPolicy) { p.Status.ObservedGeneration++ }))
		}, nil},
		{"an NVIDIADriver", func() { w.Create(&v1alpha1.NVIDIADriver{}) }, all},
		{"a ConfigMap of a policy", func() { w.Update(named("mirror"), changed(named("mirror"), edited)) }, all},
		{"another ConfigMap", func() { w.Update(named("other"), changed(named("other"), edited)) }, nil},
		{"a Secret of a policy", func() { w.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "proxy"}}) }, all},
		{"another Secret", func() { w.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mirror"}}) }, nil},
	} {
		test.report()
		if got := w.settle(); !slices.Equal(got, test.want) {
			t.Errorf("%s: reconciled %q, want %q", test.name, got, test.want)
		}
	}
}

// If the GPUNodes cannot be listed, a change of a policy requests no node, and the log has the reason.
func TestGPUNodesThatCannotBeListedAreLogged(t *testing.T) {
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n")})
	c.use(interceptor.NewClient(c, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no answer")
		},
	}), c)
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	if got := c.r.allNodes(ctx, &v1alpha1.ClusterPolicy{}); len(got) > 0 || !strings.Contains(log.String(), "List GPUNodes") || !strings.Contains(log.String(), "no answer") {
		t.Errorf("requests %q, log %q", got, log.String())
	}
}

// Without a ClusterPolicy no ConfigMap is referenced.
func TestWithoutAPolicyNoConfigMapIsReferenced(t *testing.T) {
	c := newTestCluster(t, v1alpha1.ClusterPolicySpec{Driver: v1alpha1.DriverSpec{RepoConfig: "mirror"}}, nil)
	mirror := genericEvent(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mirror"}})
	if !c.r.referenced().Generic(mirror) {
		t.Error("the ConfigMap of the policy does not pass")
	}
	if c.abandon(); c.r.referenced().Generic(mirror) {
		t.Error("it passes without a ClusterPolicy")
	}
}
