package installer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/chart"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

const (
	home    = "tessera-system"
	foreign = "default"
)

var (
	gpuNodes         = v1alpha1.GroupVersion.WithResource("gpunodes")
	policies         = v1alpha1.GroupVersion.WithResource("clusterpolicies")
	crds             = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	taintRules       = resourceapi.SchemeGroupVersion.WithResource("devicetaintrules")
	daemonSets       = appsv1.SchemeGroupVersion.WithResource("daemonsets")
	nodes            = corev1.SchemeGroupVersion.WithResource("nodes")
	pods             = corev1.SchemeGroupVersion.WithResource("pods")
	resourceSlices   = resourceapi.SchemeGroupVersion.WithResource("resourceslices")
	secrets          = corev1.SchemeGroupVersion.WithResource("secrets")
	namespaces       = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMaps       = corev1.SchemeGroupVersion.WithResource("configmaps")
	mutatingBindings = admissionv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings")
	leases           = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	roles            = rbacv1.SchemeGroupVersion.WithResource("roles")
)

// site is a cluster without nodes, with the chart in it.
type site struct {
	plane  *harness.Plane
	config *rest.Config
}

// newSite installs the chart with helm, as an administrator does, except for the hooks, whose Jobs would not run.
func newSite(t *testing.T) *site {
	t.Helper()
	programs, err := harness.ClusterPrograms(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plane, err := harness.StartPlane(t.Context(), t.TempDir(), programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	h, err := chart.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.Kubeconfig = plane.Kubeconfig
	if output, err := h.Run(t.Context(), "install", chart.Release, h.Folder, "--namespace", home, "--create-namespace", "--no-hooks"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{plane: plane, config: config}
	s.installHooks(t, h)
	for _, name := range []string{"node1", "node2"} {
		if _, err := plane.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// installHooks applies the accounts and roles of hooks.
func (s *site) installHooks(t *testing.T, h chart.Helm) {
	t.Helper()
	resources := map[string]schema.GroupVersionResource{
		"ServiceAccount": corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "ClusterRole": rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
		"ClusterRoleBinding": rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
	}
	objects, err := h.Template(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		resource, ok := resources[object.GetKind()]
		if !ok || object.GetAnnotations()["helm.sh/hook"] == "" {
			continue
		}
		client := dynamic.NewForConfigOrDie(s.config).Resource(resource)
		if _, err := client.Namespace(object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// identity is a service account with a token that is bound to a pod, as kubelet's are.
type identity struct {
	kubernetes.Interface
	dynamic dynamic.Interface
	account string
	token   string
}

// as is an account with a separate pod on a node. No two pods share a name: the API server could still have another one of that name cached, and reject the
// token.
func (s *site) as(t *testing.T, account, node string) identity {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-" + node + "-", Namespace: home},
		Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	pod, err := s.plane.Client.CoreV1().Pods(home).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.plane.Client.CoreV1().ServiceAccounts(home).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken, config.QPS = token.Status.Token, -1
	return identity{kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config), account, token.Status.Token}
}

// apply applies an object as accounts do: server side, each as a field manager of its name.
func (i identity) apply(ctx context.Context, to schema.GroupVersionResource, namespace, name, text string, sub ...string) error {
	force := true
	_, err := i.dynamic.Resource(to).Namespace(namespace).Patch(ctx, name, types.ApplyYAMLPatchType, []byte(text), metav1.PatchOptions{FieldManager: i.account, Force: &force}, sub...)
	return err
}

func (i identity) merge(ctx context.Context, to schema.GroupVersionResource, namespace, name, text string, sub ...string) error {
	_, err := i.dynamic.Resource(to).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, sub...)
	return err
}

func (i identity) create(ctx context.Context, to schema.GroupVersionResource, namespace string, object *unstructured.Unstructured) error {
	_, err := i.dynamic.Resource(to).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	return err
}

func (i identity) list(ctx context.Context, from schema.GroupVersionResource, namespace string) error {
	_, err := i.dynamic.Resource(from).Namespace(namespace).List(ctx, metav1.ListOptions{})
	return err
}

func (i identity) remove(ctx context.Context, from schema.GroupVersionResource, namespace, name string) error {
	return i.dynamic.Resource(from).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// gpuNode is a GPUNode to apply, with more text below its metadata.
func gpuNode(name, more string) string {
	return fmt.Sprintf("apiVersion: tessera.dev/v1alpha1\nkind: GPUNode\nmetadata: {name: %s}\n%s", name, more)
}

func daemonSet(namespace string) string {
	const labels = "{app.kubernetes.io/name: tessera-toolkit}"
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: tessera-toolkit, namespace: %s}, spec: {selector: {matchLabels: %s},
template: {metadata: {labels: %s}, spec: {containers: [{name: c, image: i}]}}}}`, namespace, labels, labels)
}

// operation is a pod that the installer makes, as the account.
func operation(name, account string) *corev1.Pod {
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: home, Labels: map[string]string{"app.kubernetes.io/name": "tessera-operation"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, AutomountServiceAccountToken: &no, NodeName: "node1", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
}

const (
	hardware = `status: {hardware: {bootID: one, gpus: 1, kernel: "6", os: debian12, architecture: amd64}}`
	faulted  = `status: {agent: {version: v1, podUID: one, bootID: one, ready: true, faults: [{gpu: gpu-0, signal: xid, xid: 79, severity: Fatal, remedy: Reboot,
since: "2026-01-01T00:00:00Z", bootID: one}], remediations: [{id: a, state: Holding, preparedClaims: 0}]}}`
	orders   = `[{"id":"a","gpu":"gpu-0","step":"Hold","reason":"r","since":"2026-01-01T00:00:00Z"}]`
	reported = `status: {agent: {version: v1, podUID: one, bootID: one, ready: true}}`
)

// attempt is something that an account does, and a part of the refusal; empty when it may.
type attempt struct {
	what string
	do   func(ctx context.Context, i identity) error
	want string
}

func (s *site) judge(t *testing.T, account, node string, attempts []attempt) {
	t.Helper()
	who := s.as(t, account, node)
	for _, a := range attempts {
		t.Run(strings.ReplaceAll(account+" "+a.what, " ", "_"), func(t *testing.T) {
			err := a.do(t.Context(), who)
			if a.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if a.want != "" && (err == nil || !strings.Contains(err.Error(), a.want)) {
				t.Errorf("got %v, want %q", err, a.want)
			}
		})
	}
}

const forbidden = "is forbidden"

func TestAccountsMayWhatTheyMustAndNoMore(t *testing.T) {
	harness.SkipOn136(t, "it serves no DeviceTaintRule, and pods are not assigned to tessera-scheduler")
	s := newSite(t)
	s.optOut(t)
	s.awaitPolicies(t)
	s.discovery(t)
	s.agent(t)
	s.installer(t)
	s.assigns(t)
	s.others(t)
	s.sensitive(t)
}

// awaitPolicies waits until the API server, which watches policies, applies them. Once per second it takes up those that it has received: when it applies
// the one that was created last, it applies them all.
func (s *site) awaitPolicies(t *testing.T) {
	t.Helper()
	const last = "last.example.com"
	create := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}},
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: last}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: create}}},
		Validations:      []admissionv1.Validation{{Expression: "false"}},
	}}
	if _, err := s.plane.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: last}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: last, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	if _, err := s.plane.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "never"}}
	err := harness.Poll(ctx, func(ctx context.Context) error {
		_, err := s.plane.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("no policy is applied yet")
		}
		if !strings.Contains(err.Error(), last) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) discovery(t *testing.T) {
	s.judge(t, "tessera-discovery", "node1", []attempt{
		{"reads its Node", func(ctx context.Context, i identity) error {
			_, err := i.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
			return err
		}, ""},
		{"begins its GPUNode", func(ctx context.Context, i identity) error {
			return i.create(ctx, gpuNodes, "", parse(t, gpuNode("node1", "")))
		}, ""},
		{"writes hardware", func(ctx context.Context, i identity) error {
			return i.apply(ctx, gpuNodes, "", "node1", gpuNode("node1", hardware), "status")
		}, ""},
		{"writes the agent's part", func(ctx context.Context, i identity) error {
			return i.apply(ctx, gpuNodes, "", "node1", gpuNode("node1", reported), "status")
		}, "may not write status.agent"},
		{"names a phase", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"status":{"phase":"Ready"}}`, "status")
		}, "may not write status.phase"},
		{"begins another node's", func(ctx context.Context, i identity) error {
			return i.create(ctx, gpuNodes, "", parse(t, gpuNode("node2", "")))
		}, "may not write the GPUNode node2"},
		{"begins with a driver", func(ctx context.Context, i identity) error {
			return i.create(ctx, gpuNodes, "", parse(t, gpuNode("node1", "spec: {driver: {source: Container}}")))
		}, "may not write spec, labels, annotations and finalizers"},
		{"requests a driver", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"spec":{"driver":{"source":"Container"}}}`)
		}, forbidden},
		{"deletes", func(ctx context.Context, i identity) error { return i.remove(ctx, gpuNodes, "", "node1") }, forbidden},
		{"lists GPUNodes", func(ctx context.Context, i identity) error { return i.list(ctx, gpuNodes, "") }, forbidden},
		{"labels its Node", func(ctx context.Context, i identity) error {
			return i.merge(ctx, nodes, "", "node1", `{"metadata":{"labels":{"a":"b"}}}`)
		}, forbidden},
	})
}

func (s *site) agent(t *testing.T) {
	slice := func(node string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourceapi.ResourceSliceSpec{
			Driver: v1alpha1.DriverName, NodeName: &node, Pool: resourceapi.ResourcePool{Name: wire.PoolName(node, v1alpha1.DriverName), ResourceSliceCount: 1},
		}}
	}
	s.judge(t, "tessera-node", "node1", []attempt{
		{"follows GPUNodes", func(ctx context.Context, i identity) error { return i.list(ctx, gpuNodes, "") }, ""},
		{"writes its part", func(ctx context.Context, i identity) error {
			return i.apply(ctx, gpuNodes, "", "node1", gpuNode("node1", reported), "status")
		}, ""},
		{"writes hardware", func(ctx context.Context, i identity) error {
			return i.apply(ctx, gpuNodes, "", "node1", gpuNode("node1", strings.ReplaceAll(hardware, "one", "two")), "status")
		}, "may not write status.hardware"},
		{"reports a fault and a remediation", func(ctx context.Context, i identity) error {
			return i.apply(ctx, gpuNodes, "", "node1", gpuNode("node1", faulted), "status")
		}, ""},
		{"reports the state of a remediation", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"status":{"remediations":[{"gpu":"gpu-0","step":"Restore","since":"2026-01-01T00:00:00Z"}]}}`, "status")
		}, "may not write status.remediations"},
		{"writes the history of remedies", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"status":{"history":[]}}`, "status")
		}, "may not write status.history"},
		{"orders a remedy", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"spec":{"remediations":`+orders+`}}`)
		}, forbidden},
		{"ends its maintenance", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"spec":{"maintenance":null}}`)
		}, forbidden},
		{"publishes its slices", func(ctx context.Context, i identity) error {
			_, err := i.ResourceV1().ResourceSlices().Create(ctx, slice("node1"), metav1.CreateOptions{})
			return err
		}, ""},
		{"publishes another's", func(ctx context.Context, i identity) error {
			_, err := i.ResourceV1().ResourceSlices().Create(ctx, slice("node2"), metav1.CreateOptions{})
			return err
		}, "may not write the ResourceSlice of node node2"},
		{"publishes in another's pool", func(ctx context.Context, i identity) error {
			own := slice("node1")
			own.Spec.Pool.Name = wire.PoolName("node2", v1alpha1.DriverName)
			_, err := i.ResourceV1().ResourceSlices().Create(ctx, own, metav1.CreateOptions{})
			return err
		}, "may not write the pool node2-gpu.tessera.dev"},
		{"makes a pod of a daemon", func(ctx context.Context, i identity) error {
			daemon := operation("mps", "default")
			daemon.Labels["app.kubernetes.io/name"] = "tessera-mps"
			config := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tessera-node-config"}}
			daemon.Spec.Volumes = []corev1.Volume{
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &config}},
			}
			daemon.Spec.Containers[0].Env = []corev1.EnvVar{
				{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
			}
			_, err := i.CoreV1().Pods(home).Create(ctx, daemon, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}, ""},
		{"pulls a daemon's image with a Secret", func(ctx context.Context, i identity) error {
			daemon := operation("mps", "default")
			daemon.Labels["app.kubernetes.io/name"] = "tessera-mps"
			daemon.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "of-a-user"}}
			_, err := i.CoreV1().Pods(home).Create(ctx, daemon, metav1.CreateOptions{})
			return err
		}, "the pull secrets of an MPS daemon must be some of []"},
		{"makes a pod that is no daemon's", func(ctx context.Context, i identity) error {
			_, err := i.CoreV1().Pods(home).Create(ctx, operation("shell", "default"), metav1.CreateOptions{})
			return err
		}, "create and delete only pods of MPS daemons"},
		{"labels its Node", func(ctx context.Context, i identity) error {
			return i.merge(ctx, nodes, "", "node1", `{"metadata":{"labels":{"a":"b"}}}`)
		}, forbidden},
		{"lists claims", func(ctx context.Context, i identity) error {
			return i.list(ctx, resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), "")
		}, forbidden},
	})
	// Another node's agent finds the GPUNode of node1 closed to it.
	s.judge(t, "tessera-node", "node2", []attempt{
		{"reports a fault on another's", func(ctx context.Context, i identity) error {
			return i.apply(ctx, gpuNodes, "", "node1", gpuNode("node1", faulted), "status")
		}, "the node agent on node node2 may not write the GPUNode node1"},
		{"writes its part into another's", func(ctx context.Context, i identity) error {
			return i.apply(ctx, gpuNodes, "", "node1", gpuNode("node1", strings.ReplaceAll(reported, "one", "two")), "status")
		}, "the node agent on node node2 may not write the GPUNode node1"},
	})
}

func (s *site) installer(t *testing.T) {
	rule := `{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: tessera-maintenance-node1}, spec: {deviceSelector: {driver: gpu.tessera.dev},
taint: {key: tessera.dev/maintenance, effect: NoSchedule}}}`
	lease := "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: %s, namespace: %s}}"
	s.judge(t, "tessera-installer", "node2", []attempt{
		{"reads its policy", func(ctx context.Context, i identity) error { return i.list(ctx, policies, "") }, ""},
		{"reports about its policy", func(ctx context.Context, i identity) error {
			return i.merge(ctx, policies, "", "default", `{"status":{"observedGeneration":1}}`, "status")
		}, ""},
		{"edits its policy", func(ctx context.Context, i identity) error {
			return i.merge(ctx, policies, "", "default", `{"spec":{"readinessTaint":true}}`)
		}, forbidden},
		{"decides about a node", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"spec":{"agentPool":"default"}}`)
		}, ""},
		{"orders a remedy", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"spec":{"remediations":`+orders+`}}`)
		}, ""},
		{"reports its phase", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"status":{"remediations":[{"gpu":"gpu-0","step":"Hold","since":"2026-01-01T00:00:00Z"}]}}`, "status")
		}, ""},
		{"requests a reboot", func(ctx context.Context, i identity) error {
			return i.merge(ctx, nodes, "", "node1", `{"metadata":{"labels":{"tessera.dev/reboot-required":"true"}}}`)
		}, ""},
		{"sees what agents publish", func(ctx context.Context, i identity) error { return i.list(ctx, resourceSlices, "") }, ""},
		{"unpublishes a faulted GPU", func(ctx context.Context, i identity) error { return i.remove(ctx, resourceSlices, "", "node1") }, forbidden},
		{"names its phase", func(ctx context.Context, i identity) error {
			return i.apply(ctx, gpuNodes, "", "node1", gpuNode("node1", "status: {phase: Ready}"), "status")
		}, ""},
		{"speaks for the agent", func(ctx context.Context, i identity) error {
			return i.merge(ctx, gpuNodes, "", "node1", `{"status":{"agent":null}}`, "status")
		}, "the installer may not write status.agent"},
		{"labels a node", func(ctx context.Context, i identity) error {
			return i.merge(ctx, nodes, "", "node1", `{"metadata":{"labels":{"tessera.dev/ready":"true"}}}`)
		}, ""},
		{"cordons a node", func(ctx context.Context, i identity) error {
			return i.merge(ctx, nodes, "", "node1", `{"spec":{"unschedulable":true}}`)
		}, "may not cordon a node"},
		{"makes a DaemonSet", func(ctx context.Context, i identity) error {
			return i.apply(ctx, daemonSets, home, "tessera-toolkit", daemonSet(home))
		}, ""},
		{"makes one elsewhere", func(ctx context.Context, i identity) error {
			return i.apply(ctx, daemonSets, foreign, "tessera-toolkit", daemonSet(foreign))
		}, forbidden},
		{"removes a DaemonSet", func(ctx context.Context, i identity) error { return i.remove(ctx, daemonSets, home, "tessera-toolkit") }, ""},
		{"works on a node", func(ctx context.Context, i identity) error {
			_, err := i.CoreV1().Pods(home).Create(ctx, operation("tessera-operation-node1", "tessera-driver"), metav1.CreateOptions{})
			return err
		}, ""},
		{"works as itself", func(ctx context.Context, i identity) error {
			_, err := i.CoreV1().Pods(home).Create(ctx, operation("tessera-operation-node2", "tessera-installer"), metav1.CreateOptions{})
			return err
		}, "may not access the API server"},
		{"reads a user's pod", func(ctx context.Context, i identity) error {
			_, err := i.CoreV1().Pods(foreign).Get(ctx, "anything", metav1.GetOptions{})
			return err
		}, "not found"},
		{"lists users' pods", func(ctx context.Context, i identity) error { return i.list(ctx, pods, foreign) }, forbidden},
		{"makes a pod elsewhere", func(ctx context.Context, i identity) error {
			pod := operation("tessera-operation-node1", "tessera-driver")
			pod.Namespace = foreign
			_, err := i.CoreV1().Pods(foreign).Create(ctx, pod, metav1.CreateOptions{})
			return err
		}, forbidden},
		{"evicts", func(ctx context.Context, i identity) error {
			return i.CoreV1().Pods(home).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "tessera-operation-node1", Namespace: home}})
		}, ""},
		{"deletes a user's pod", func(ctx context.Context, i identity) error { return i.remove(ctx, pods, foreign, "anything") }, forbidden},
		{"takes GPUs out of service", func(ctx context.Context, i identity) error {
			return i.apply(ctx, taintRules, "", "tessera-maintenance-node1", rule)
		}, ""},
		{"puts them back", func(ctx context.Context, i identity) error {
			return i.remove(ctx, taintRules, "", "tessera-maintenance-node1")
		}, ""},
		{"assigns pods to the scheduler", func(ctx context.Context, i identity) error {
			return i.apply(ctx, mutatingBindings, "", assignment, binding(assignment))
		}, ""},
		{"binds another policy", func(ctx context.Context, i identity) error {
			return i.apply(ctx, mutatingBindings, "", "another", binding("another"))
		}, forbidden},
		{"reads contents that are hashed", func(ctx context.Context, i identity) error { return i.list(ctx, secrets, home) }, ""},
		{"reads Secrets elsewhere", func(ctx context.Context, i identity) error { return i.list(ctx, secrets, foreign) }, forbidden},
		{"reads ConfigMaps elsewhere", func(ctx context.Context, i identity) error { return i.list(ctx, configMaps, foreign) }, forbidden},
		{"labels its namespace", func(ctx context.Context, i identity) error {
			return i.merge(ctx, namespaces, "", home, `{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`)
		}, ""},
		{"labels another namespace", func(ctx context.Context, i identity) error {
			return i.merge(ctx, namespaces, "", foreign, `{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`)
		}, forbidden},
		{"takes its lease", func(ctx context.Context, i identity) error {
			return i.create(ctx, leases, home, parse(t, fmt.Sprintf(lease, "tessera-installer", home)))
		}, ""},
		{"takes the scheduler's lease", func(ctx context.Context, i identity) error {
			return i.merge(ctx, leases, home, "tessera-scheduler", `{"spec":{"holderIdentity":"me"}}`)
		}, forbidden},
		{"makes a role", func(ctx context.Context, i identity) error {
			return i.create(ctx, roles, home, parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: mine}}"))
		}, forbidden},
		{"publishes a slice", func(ctx context.Context, i identity) error { return i.remove(ctx, resourceSlices, "", "node1") }, forbidden},
		{"changes a kind", func(ctx context.Context, i identity) error {
			return i.merge(ctx, crds, "", "gpunodes.tessera.dev", `{}`)
		}, forbidden},
	})
}

func (s *site) others(t *testing.T) {
	s.judge(t, "tessera-crds", "node2", []attempt{
		{"upgrades a kind of ours", func(ctx context.Context, i identity) error {
			return i.merge(ctx, crds, "", "gpunodes.tessera.dev", `{"metadata":{"annotations":{"a":"b"}}}`)
		}, ""},
		{"upgrades another", func(ctx context.Context, i identity) error {
			return i.merge(ctx, crds, "", "certificates.example.com", `{}`)
		}, forbidden},
		{"deletes a kind", func(ctx context.Context, i identity) error { return i.remove(ctx, crds, "", "gpunodes.tessera.dev") }, forbidden},
		{"reads GPUNodes", func(ctx context.Context, i identity) error { return i.list(ctx, gpuNodes, "") }, forbidden},
	})
	for _, account := range []string{"tessera-driver", "tessera-monitor", "tessera-validation"} {
		s.judge(t, account, "node1", []attempt{
			{"lists pods", func(ctx context.Context, i identity) error { return i.list(ctx, pods, home) }, forbidden},
			{"reads GPUNodes", func(ctx context.Context, i identity) error { return i.list(ctx, gpuNodes, "") }, forbidden},
		})
	}
	s.judge(t, "tessera-scheduler", "node2", []attempt{
		{"reads slices", func(ctx context.Context, i identity) error { return i.list(ctx, resourceSlices, "") }, ""},
		{"reads GPUNodes", func(ctx context.Context, i identity) error { return i.list(ctx, gpuNodes, "") }, forbidden},
		{"reads Secrets", func(ctx context.Context, i identity) error { return i.list(ctx, secrets, home) }, forbidden},
	})
}

// sensitive queries the API server itself for the permissions that no account of the chart may have.
func (s *site) sensitive(t *testing.T) {
	accounts, err := s.plane.Client.CoreV1().ServiceAccounts(home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	never := []authorizationv1.ResourceAttributes{
		{Verb: "create", Resource: "pods", Subresource: "exec"}, {Verb: "create", Resource: "pods", Subresource: "attach"},
		{Verb: "create", Resource: "pods", Subresource: "portforward"}, {Verb: "create", Resource: "serviceaccounts", Subresource: "token"},
		{Verb: "get", Resource: "nodes", Subresource: "proxy"}, {Verb: "create", Resource: "secrets"}, {Verb: "patch", Resource: "secrets"},
		{Verb: "create", Resource: "serviceaccounts"}, {Verb: "impersonate", Resource: "users"}, {Verb: "impersonate", Resource: "serviceaccounts"},
		{Verb: "create", Resource: "clusterrolebindings", Group: rbacv1.GroupName}, {Verb: "create", Resource: "rolebindings", Group: rbacv1.GroupName},
		{Verb: "patch", Resource: "clusterroles", Group: rbacv1.GroupName}, {Verb: "escalate", Resource: "clusterroles", Group: rbacv1.GroupName},
		{Verb: "bind", Resource: "clusterroles", Group: rbacv1.GroupName}, {Verb: "patch", Resource: "validatingadmissionpolicies", Group: "admissionregistration.k8s.io"},
		{Verb: "delete", Resource: "validatingadmissionpolicybindings", Group: "admissionregistration.k8s.io"},
		{Verb: "create", Resource: "mutatingwebhookconfigurations", Group: "admissionregistration.k8s.io"},
		{Verb: "patch", Resource: "deviceclasses", Group: resourceapi.GroupName}, {Verb: "delete", Resource: "clusterpolicies", Group: v1alpha1.GroupVersion.Group},
		{Verb: "deletecollection", Resource: "pods"}, {Verb: "delete", Resource: "nodes"}, {Verb: "delete", Resource: "namespaces"}, {Verb: "*", Resource: "*", Group: "*"},
	}
	for _, account := range accounts.Items {
		if !strings.HasPrefix(account.Name, "tessera-") {
			continue
		}
		for _, namespace := range []string{home, foreign, metav1.NamespaceSystem, ""} {
			for _, attributes := range never {
				attributes.Namespace = namespace
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: "system:serviceaccount:" + home + ":" + account.Name, ResourceAttributes: &attributes,
					Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + home, "system:authenticated"},
				}}
				answer, err := s.plane.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if answer.Status.Allowed {
					t.Errorf("%s may %s %s/%s in %q: %s", account.Name, attributes.Verb, attributes.Resource, attributes.Subresource, namespace, answer.Status.Reason)
				}
			}
		}
	}
}
