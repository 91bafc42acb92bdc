package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/chart"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// ground is an API server with the chart's accounts, permissions and policies. A world has it to itself.
type ground struct {
	*harness.Plane
	config *rest.Config
	scheme *runtime.Scheme
	// dir has all files, program is the installer.
	dir, program string
}

// grounds are those of the test binary. A ground is used by one test after the other, so there are as many as tests run in parallel.
var grounds struct {
	sync.Mutex
	all, idle []*ground
}

// program builds the installer once, in a folder that TestMain removes.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "installer")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tessera-installer")
	return path, harness.Build(context.Background(), path, "./cmd/tessera-installer")
})

// takeGround returns an idle ground, or a new one.
func takeGround() (*ground, error) {
	grounds.Lock()
	defer grounds.Unlock()
	if last := len(grounds.idle) - 1; last >= 0 {
		g := grounds.idle[last]
		grounds.idle = grounds.idle[:last]
		return g, nil
	}
	g, err := startGround(context.Background()) // it outlives the test
	if g != nil {
		grounds.all = append(grounds.all, g)
	}
	return g, err
}

// returnGround makes a ground, from which the test has removed its objects, available to other tests.
func returnGround(g *ground) {
	grounds.Lock()
	defer grounds.Unlock()
	grounds.idle = append(grounds.idle, g)
}

// startGround returns the ground also with an error, if it must be stopped.
func startGround(ctx context.Context) (*ground, error) {
	dir, err := os.MkdirTemp("", "ground")
	if err != nil {
		return nil, err
	}
	g := &ground{dir: dir, scheme: runtime.NewScheme()}
	programs, err := harness.ClusterPrograms(ctx)
	if err != nil {
		return g, err
	}
	if g.Plane, err = harness.StartPlane(ctx, dir, programs); err != nil {
		return g, err
	}
	if g.config, err = clientcmd.BuildConfigFromFlags("", g.Kubeconfig); err != nil {
		return g, err
	}
	g.config.QPS = -1
	if err := errors.Join(clientgoscheme.AddToScheme(g.scheme), v1alpha1.AddToScheme(g.scheme)); err != nil {
		return g, err
	}
	if g.program, err = program(); err != nil {
		return g, err
	}
	if output, err := g.command(ctx, "crds"); err != nil {
		return g, fmt.Errorf("%w: %s", err, output)
	}
	return g, g.furnish(ctx)
}

// end stops the API server and removes the files.
func (g *ground) end() {
	if g.Plane != nil {
		g.Stop()
	}
	_ = os.RemoveAll(g.dir)
}

// TestMain stops what the tests have started.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, g := range grounds.all {
		g.end()
	}
	if len(grounds.all) > 0 {
		if path, err := program(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// command runs the installer's program as an administrator and returns its output.
func (g *ground) command(ctx context.Context, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, g.program, append(args, "--kubeconfig="+g.Kubeconfig)...).CombinedOutput()
	return string(output), err
}

const (
	home    = "tessera-system"
	foreign = "default"
)

// furnish makes what the chart makes, but for the installer itself and the policy, which are the tests' to make.
func (g *ground) furnish(ctx context.Context) error {
	h, err := chart.New(ctx)
	if err != nil {
		return err
	}
	objects, err := h.Template(ctx, home)
	if err != nil {
		return err
	}
	admin, err := client.New(g.config, client.Options{Scheme: g.scheme})
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}
	if err := admin.Create(ctx, namespace); err != nil {
		return err
	}
	for _, object := range objects {
		if strings.HasPrefix(object.GetName(), "allocations.") {
			continue // claims are allocated by the tests, who are no scheduler
		}
		switch object.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "DeviceClass", "ValidatingAdmissionPolicy",
			"ValidatingAdmissionPolicyBinding":
			if err := admin.Create(ctx, object); err != nil {
				return fmt.Errorf("make %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
	return nil
}

// world is the cluster of one test: its nodes, the simulated components, and the installer.
type world struct {
	*testing.T
	*ground
	// admin reads and writes without a cache.
	admin client.Client
	*simulator
	requests *requests
	installs
}

// newWorld gives a cluster without nodes and without a policy.
func newWorld(t *testing.T) *world {
	t.Helper()
	harness.SkipOn136(t, "it serves no DeviceTaintRule, and the simulated agents publish no taints; e2e/tests/installation has real ones")
	t.Parallel()
	g, err := takeGround()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { returnGround(g) })
	w := &world{T: t, ground: g, requests: &requests{}}
	if w.admin, err = client.New(g.config, client.Options{Scheme: g.scheme}); err != nil {
		t.Fatal(err)
	}
	w.simulator = newSimulator(t, g, w.admin)
	t.Cleanup(w.clear)
	return w
}

// clear takes everything back.
func (w *world) clear() {
	ctx := context.Background()
	w.stop()
	w.stopSimulator()
	now := client.GracePeriodSeconds(0)
	for _, object := range []client.Object{
		&v1alpha1.ClusterPolicy{}, &v1alpha1.NVIDIADriver{}, &v1alpha1.GPUNode{}, &corev1.Node{}, &resourceapi.DeviceTaintRule{},
		&resourceapi.ResourceSlice{},
	} {
		if err := w.admin.DeleteAllOf(ctx, object); err != nil {
			w.Error(err)
		}
	}
	for _, namespace := range []string{home, foreign} {
		for _, object := range []client.Object{
			&corev1.Pod{}, &resourceapi.ResourceClaim{}, &policyv1.PodDisruptionBudget{}, &corev1.ConfigMap{}, &resourceapi.ResourceClaimTemplate{},
		} {
			if err := w.admin.DeleteAllOf(ctx, object, client.InNamespace(namespace), now); err != nil {
				w.Error(err)
			}
		}
	}
	w.removeOperands(ctx)
}

// machine is the hardware of a node and the labels and spec that users set.
type machine struct {
	name, os, kernel, hostDriver string
	labels                       map[string]string
	// undiscovered nodes are not found by the discovery.
	undiscovered bool
	boot         int
	// gpus is how many it has, one when zero.
	gpus int32
}

// join adds nodes to the cluster: Ready, and found by the discovery unless they are undiscovered.
func (w *world) join(machines ...machine) {
	w.Helper()
	for _, m := range machines {
		if m.os == "" {
			m.os = "debian12"
		}
		if m.kernel == "" {
			m.kernel = "6.1.0"
		}
		w.configure(func(s *simulator) { s.machines[m.name] = m })
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
		maps.Copy(node.Labels, m.labels)
		w.must(w.admin.Create(w.Context(), node))
		w.nodeStatus(m.name, func(s *corev1.NodeStatus) {
			s.NodeInfo.BootID = m.bootID()
			s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			s.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
		})
	}
}

func (m machine) bootID() string { return fmt.Sprintf("boot-%s-%d", m.name, m.boot) }

// nodeStatus changes the status of a node.
func (w *world) nodeStatus(name string, change func(*corev1.NodeStatus)) {
	w.Helper()
	w.edit(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(o client.Object) { change(&o.(*corev1.Node).Status) }, "status")
}

// label writes labels of a node as people do; an empty value removes one.
func (w *world) label(name string, labels map[string]string) {
	w.Helper()
	w.edit(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(o client.Object) {
		all := o.GetLabels()
		if all == nil {
			all = map[string]string{}
		}
		for k, v := range labels {
			if all[k] = v; v == "" {
				delete(all, k)
			}
		}
		o.SetLabels(all)
	})
}

// edit changes an object as a client does: conflicts and timeouts are retried.
func (w *world) edit(object client.Object, change func(client.Object), sub ...string) {
	w.Helper()
	for {
		w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(object), object))
		change(object)
		var err error
		if len(sub) > 0 {
			err = w.admin.Status().Update(w.Context(), object)
		} else {
			err = w.admin.Update(w.Context(), object)
		}
		if !apierrors.IsConflict(err) && !isServerBusy(err) {
			w.must(err)
			return
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// policy makes the ClusterPolicy, or changes its spec when there is one.
func (w *world) policy(change func(*v1alpha1.ClusterPolicySpec)) {
	w.Helper()
	policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}
	err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(policy), policy)
	if apierrors.IsNotFound(err) {
		policy.Spec.Upgrade = quick()
		policy.Spec.Driver.Version = "580.1"
		change(&policy.Spec)
		w.must(w.admin.Create(w.Context(), policy))
		return
	}
	w.edit(policy, func(o client.Object) { change(&o.(*v1alpha1.ClusterPolicy).Spec) })
}

// quick is an upgrade policy for the impatient.
func quick() v1alpha1.UpgradePolicy {
	return v1alpha1.UpgradePolicy{
		Soak: &metav1.Duration{Duration: time.Second}, RetryAfter: &metav1.Duration{Duration: time.Hour},
		Drain: v1alpha1.DrainSpec{Timeout: &metav1.Duration{Duration: harness.Patience}},
	}
}

// version is an edit that changes the driver.
func version(v string) func(*v1alpha1.ClusterPolicySpec) {
	return func(s *v1alpha1.ClusterPolicySpec) { s.Driver.Version = v }
}

// get reads an object; it must be there.
func get[T client.Object](w *world, object T, namespace, name string) T {
	w.Helper()
	w.must(w.admin.Get(w.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object))
	return object
}

func (w *world) gpunode(name string) *v1alpha1.GPUNode {
	w.Helper()
	return get(w, &v1alpha1.GPUNode{}, "", name)
}

// limit is how long anything may take; usually it is a second or two.
const limit = harness.Patience

// until waits until a condition that depends on objects holds; it is evaluated again whenever one changes. It returns what is still missing, and reads from
// the API server: the cache that triggers it may be behind what the test has written or read.
func (w *world) until(what string, missing func() string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	wake, leave := w.subscribe()
	defer leave()
	for over := false; ; {
		last := missing()
		switch {
		case last == "":
			return
		case over:
			w.Fatalf("%s: %s\n%s", what, last, w.report())
		}
		select {
		case <-wake:
		case <-ctx.Done():
			over = true
		}
	}
}

// untilPhase waits until nodes are in a phase.
func (w *world) untilPhase(phase v1alpha1.NodePhase, names ...string) {
	w.Helper()
	w.until(fmt.Sprintf("%v become %s", names, phase), func() string {
		for _, name := range names {
			node := &v1alpha1.GPUNode{}
			if err := w.admin.Get(w.Context(), types.NamespacedName{Name: name}, node); err != nil {
				return err.Error()
			}
			if node.Status.Phase != phase {
				return fmt.Sprintf("%s is %s %s (%s: %s)", name, node.Status.Phase, node.Status.Step, node.Status.Reason, node.Status.Message)
			}
		}
		return ""
	})
}

// untilReady waits until the policy is Ready for its present generation, as kubectl wait does.
func (w *world) untilReady() {
	w.Helper()
	w.until("the policy is Ready", func() string {
		policy := &v1alpha1.ClusterPolicy{}
		if err := w.admin.Get(w.Context(), types.NamespacedName{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
			return err.Error()
		}
		return missingCondition(policy.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, policy.Generation)
	})
}

// missingCondition returns how a condition differs from the expected one.
func missingCondition(list []metav1.Condition, kind string, status metav1.ConditionStatus, generation int64) string {
	for _, c := range list {
		if c.Type == kind && c.Status == status && c.ObservedGeneration == generation {
			return ""
		}
	}
	return fmt.Sprintf("want %s=%s of generation %d, have %v", kind, status, generation, list)
}

// report is what people would look at.
func (w *world) report() string {
	var text strings.Builder
	nodes := &v1alpha1.GPUNodeList{}
	_ = w.admin.List(context.Background(), nodes)
	for _, n := range nodes.Items {
		s := n.Status
		driver := "-"
		if n.Spec.Driver != nil {
			driver = n.Spec.Driver.Digest
		}
		fmt.Fprintf(&text, "%s: %s %s %s: %s; driver %.12s, maintenance %v\n", n.Name, s.Phase, s.Step, s.Reason, s.Message, driver, n.Spec.Maintenance)
	}
	policies := &v1alpha1.ClusterPolicyList{}
	_ = w.admin.List(context.Background(), policies)
	for _, p := range policies.Items {
		fmt.Fprintf(&text, "policy: %+v\n", p.Status)
	}
	if output := w.failed(); output != nil {
		fmt.Fprintf(&text, "the installer ended: %v\n", output)
	}
	return text.String()
}

// token is the installer's own identity.
func (g *ground) token(ctx context.Context) (*rest.Config, error) {
	answer, err := g.Client.CoreV1().ServiceAccounts(home).CreateToken(ctx, "tessera-installer", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(g.config)
	config.BearerToken = answer.Status.Token
	return config, nil
}

// user makes a pod of a user with a claim of a GPU of the node, as scheduler and kubelet leave them.
func (w *world) user(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	pod, err := w.makeUser(w.Context(), name, node, changes...)
	w.must(err)
	return pod
}

// makeUser creates such a pod for callers outside of the test's own goroutine.
func (s *simulator) makeUser(ctx context.Context, name, node string, changes ...func(*corev1.Pod)) (*corev1.Pod, error) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: foreign, Name: name}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "gpu.tessera.dev", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}}}
	if err := s.admin.Create(ctx, claim); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: foreign, Name: name, Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "some", UID: "some", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	if err := s.admin.Create(ctx, pod); err != nil {
		return nil, err
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if err := s.admin.Status().Update(ctx, pod); err != nil {
		return nil, err
	}
	claim.Status = resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "gpu", Driver: v1alpha1.DriverName, Pool: node + "-" + v1alpha1.DriverName, Device: cmp.Or(pod.Annotations[annotationDevice], "gpu-0"),
		}}}},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
	}
	return pod, s.admin.Status().Update(ctx, claim)
}

// annotationDevice of a pod of a user names the device that its claim gets.
const annotationDevice = "simulator/device"

// exists reports whether a pod of a user is still the one that was made.
func (w *world) exists(pod *corev1.Pod) bool {
	w.Helper()
	now := &corev1.Pod{}
	err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(pod), now)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return err == nil && now.UID == pod.UID && now.DeletionTimestamp == nil
}

// steps are the phases and steps of a node in their order, each once.
func (w *world) steps(node string) []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.Clone(w.phases[node])
}

// verdicts are the messages of the policy's condition Ready, each change once and at least so many: the watch that delivers them may be behind what was read.
func (w *world) verdicts(least int) (output []string) {
	w.Helper()
	w.until("the watch has the policy Ready", func() string {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		if output = slices.Clone(w.readyStatuses); len(output) < least || output[len(output)-1] != string(metav1.ConditionTrue) {
			return fmt.Sprint(output)
		}
		return ""
	})
	return output
}

// way are the steps of a node that is Ready: the watch that delivers them may be behind what was read.
func (w *world) way(node string) (steps []string) {
	w.Helper()
	w.until("the way of "+node+" ends", func() string {
		if steps = w.steps(node); len(steps) == 0 || steps[len(steps)-1] != string(v1alpha1.PhaseReady) {
			return fmt.Sprint(steps)
		}
		return ""
	})
	return steps
}
