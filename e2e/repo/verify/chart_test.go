package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/e2e/env/chart"
)

// helm is built once for all tests.
var helm = sync.OnceValues(func() (chart.Helm, error) { return chart.New(context.Background()) })

// rendered returns the objects of the chart as installed in tessera-system with these flags. An unknown field is an error, as it is to the
// API server.
func rendered(t *testing.T, flags ...string) map[string][]runtime.Object {
	t.Helper()
	return strict(t, templated(t, "tessera-system", flags...))
}

// renderings caches helm's output, by namespace and flags without files: the chart does not change during the tests.
var renderings sync.Map

// templated returns the objects of the chart as helm renders it. The caller may modify them.
func templated(t *testing.T, namespace string, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	key := strings.Join(append([]string{namespace}, flags...), " ")
	kept, ok := renderings.Load(key)
	if !ok {
		h, err := helm()
		if err != nil {
			t.Fatal(err)
		}
		objects, err := h.Template(t.Context(), namespace, flags...)
		if err != nil {
			t.Fatal(err)
		}
		if kept = objects; !slices.Contains(flags, "-f") {
			renderings.Store(key, objects)
		}
	}
	var own []*unstructured.Unstructured
	if objects, ok := kept.([]*unstructured.Unstructured); ok {
		for _, object := range objects {
			own = append(own, object.DeepCopy())
		}
	}
	return own
}

// strict decodes objects into the types of the API.
func strict(t *testing.T, objects []*unstructured.Unstructured) map[string][]runtime.Object {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(kinds, serializer.EnableStrict).UniversalDeserializer()
	typed := map[string][]runtime.Object{}
	for _, object := range objects {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		decoded, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
			continue
		}
		typed[object.GetKind()] = append(typed[object.GetKind()], decoded)
	}
	return typed
}

// variants are values that change the set of the chart's objects.
func variants() map[string][]string {
	return map[string][]string{
		"as it comes":        nil,
		"one replica":        {"--set", "installer.replicas=1"},
		"other images":       {"--set", "images.tag=v1", "--set", "images.node.repository=registry.example.com:5000/a/node", "--set", "images.installer.digest=sha256:" + strings.Repeat("a", 64)},
		"pull secrets":       {"--set", "imagePullSecrets={one,two}"},
		"no network policy":  {"--set", "networkPolicy.enabled=false"},
		"metrics from one":   {"--set", "networkPolicy.metricsFrom.team=monitoring"},
		"the hosts' drivers": {"--set", "clusterPolicy.driver.enabled=false"},
		"no scheduler":       {"--set", "clusterPolicy.scheduler.enabled=false"},
		"replaced scheduler": {"--set", "clusterPolicy.scheduler.mode=Replace"},
		"draining uninstall": {"--set", "cleanup.drain=true"},
		"plain installer":    {"--set", "installer.priorityClassName=", "--set-json", "installer.tolerations=[]", "--set-json", `installer.nodeSelector={"a":"b"}`},
	}
}

func TestChartLintsAndDecodes(t *testing.T) {
	h, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	for name, flags := range variants() {
		t.Run(name, func(t *testing.T) {
			if output, err := h.Run(t.Context(), append([]string{"lint", "--strict", h.Folder}, flags...)...); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
			if objects := rendered(t, append([]string{"--include-crds"}, flags...)...); len(objects["CustomResourceDefinition"]) != 3 || len(objects["ClusterPolicy"]) != 1 {
				t.Errorf("kinds %v, want three CustomResourceDefinitions and a ClusterPolicy among them", slices.Sorted(maps.Keys(objects)))
			}
		})
	}
}

// TestChartRefusesBadValues: the error names the value and what is allowed.
func TestChartRefusesBadValues(t *testing.T) {
	h, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ set, want string }{
		"an unknown value":       {"replicas=2", "additional properties 'replicas' not allowed"},
		"an unknown inner value": {"images.nodes.tag=v1", "at '/images': additional properties 'nodes' not allowed"},
		"too many replicas":      {"installer.replicas=3", "at '/installer/replicas': maximum: got 3, want 2"},
		"a tag in a repository":  {"images.node.repository=localhost/tessera/node:dev", "at '/images/node/repository'"},
		"a tag on the driver":    {"images.driver.tag=580", "at '/images/driver': additional properties 'tag' not allowed"},
		"no driver version":      {"images.driver.version=latest", "at '/images/driver/version'"},
		"half a digest":          {"images.node.digest=sha256:abc", "at '/images/node/digest'"},
		"text for a switch":      {"cleanup.drain=later", "at '/cleanup/drain': got string, want boolean"},
		"a port of no API":       {"networkPolicy.apiServerPorts={0}", "at '/networkPolicy/apiServerPorts/0'"},
		"a policy in a list":     {"clusterPolicy={a}", "at '/clusterPolicy': got array, want null or object"},
		"a switch for a part":    {"clusterPolicy.scheduler=true", "at '/clusterPolicy/scheduler': got boolean, want null or object"},
		"no such mode":           {"clusterPolicy.scheduler.mode=instead", "at '/clusterPolicy/scheduler/mode': value must be one of 'Additional', 'Replace'"},
		"another driver's name":  {"clusterPolicy.nodeAgent.config.driverName=gpu.example.com", "are for gpu.tessera.dev or gpu.nvidia.com"},
		"NVIDIA's of a pool": {
			"clusterPolicy.nodeAgent.pools[0].name=a,clusterPolicy.nodeAgent.pools[1].config.driverName=gpu.nvidia.com",
			"clusterPolicy.nodeAgent.pools[1].config.driverName is gpu.nvidia.com, and that of clusterPolicy.nodeAgent.config gpu.tessera.dev: all nodes have one driver",
		},
		"NVIDIA's but of a pool": {
			"clusterPolicy.nodeAgent.config.driverName=gpu.nvidia.com,clusterPolicy.nodeAgent.pools[0].config.attributes=Full",
			"clusterPolicy.nodeAgent.pools[0].config.driverName is gpu.tessera.dev, and that of clusterPolicy.nodeAgent.config gpu.nvidia.com",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := h.Template(t.Context(), "tessera-system", "--set", test.set); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("--set %s: %v, want %q", test.set, err, test.want)
			}
		})
	}
	if _, err := h.Run(t.Context(), "template", h.Folder, "--kube-version", "v1.35.9"); err == nil || !strings.Contains(err.Error(), "1.36") {
		t.Errorf("an older cluster: %v, want that 1.36 is needed", err)
	}
	if _, err := h.Run(t.Context(), "template", h.Folder, "--kube-version", "v1.36.0-eks-1"); err != nil {
		t.Errorf("the oldest supported version, with a provider's suffix: %v", err)
	}
}

// TestChartWithoutScheduler: where the cluster cannot run tessera-scheduler, no policy refuses the allocations of other schedulers or assigns pods to it.
func TestChartWithoutScheduler(t *testing.T) {
	h, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		flags []string
		want  bool
	}{
		"1.37":                       {[]string{"--kube-version", "v1.37.0"}, true},
		"1.36":                       {[]string{"--kube-version", "v1.36.5"}, false},
		"with DeviceTaintRules (v1)": {[]string{"--kube-version", "v1.36.5", "--api-versions", "resource.k8s.io/v1/DeviceTaintRule"}, true},
	} {
		objects, err := h.Template(t.Context(), "tessera-system", test.flags...)
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range []string{"allocations.gpu.tessera.dev", "schedulername.gpu.tessera.dev"} {
			got := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == policy })
			if got != test.want {
				t.Errorf("%s: policy %s %t, want %t", name, policy, got, test.want)
			}
		}
	}
}

// TestChartPassesThePolicyThrough: clusterPolicy of the values is the spec, extended only with the pull secrets.
func TestChartPassesThePolicyThrough(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	text := "clusterPolicy:\n  driver: {enabled: false, version: 580.1.2}\n  upgrade: {canary: 0, maxUnavailable: 10%}\nimagePullSecrets: [key]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := one[*v1alpha1.ClusterPolicy](t, rendered(t, "-f", file))
	spec := policy.Spec
	if policy.Name != v1alpha1.ClusterPolicyName || spec.Driver.On() || spec.Driver.Version != "580.1.2" || spec.Upgrade.Canary.IntValue() != 0 || spec.Upgrade.MaxUnavailable.String() != "10%" {
		t.Errorf("policy %s: %+v", policy.Name, spec)
	}
	if diff := cmp.Diff([]string{"key"}, spec.DaemonSets.ImagePullSecrets); diff != "" {
		t.Errorf("pull secrets of the operands (-want +got):\n%s", diff)
	}
	// A key without a value changes nothing.
	if err := os.WriteFile(file, []byte("clusterPolicy:\n  scheduler:\n  nodeAgent:\n  daemonSets:\nimagePullSecrets: [key]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := rendered(t, "-f", file)
	if sets := one[*v1alpha1.ClusterPolicy](t, objects).Spec.DaemonSets; !slices.Equal(sets.ImagePullSecrets, []string{"key"}) || len(objects["MutatingAdmissionPolicy"]) != 1 {
		t.Errorf("with empty keys: %+v, %d MutatingAdmissionPolicies", sets, len(objects["MutatingAdmissionPolicy"]))
	}
	if err := os.WriteFile(file, []byte("clusterPolicy:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if len(rendered(t, "-f", file)["ClusterPolicy"]) != 1 {
		t.Error("without values in clusterPolicy the chart has no ClusterPolicy")
	}
	if diff := cmp.Diff(v1alpha1.ClusterPolicySpec{}, one[*v1alpha1.ClusterPolicy](t, rendered(t)).Spec); diff != "" {
		t.Errorf("the default policy (-want +got):\n%s", diff)
	}
}

// pods returns the pod templates of the chart by name.
func pods(objects map[string][]runtime.Object) map[string]corev1.PodTemplateSpec {
	found := map[string]corev1.PodTemplateSpec{}
	for _, d := range find[*appsv1.Deployment](objects) {
		found[d.Name] = d.Spec.Template
	}
	for _, d := range find[*appsv1.DaemonSet](objects) {
		found[d.Name] = d.Spec.Template
	}
	for _, j := range find[*batchv1.Job](objects) {
		found[j.Name] = j.Spec.Template
	}
	for _, p := range find[*corev1.Pod](objects) {
		found[p.Name] = corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	}
	return found
}

func TestChartRunsWithoutPrivileges(t *testing.T) {
	found := pods(rendered(t, "--set", "imagePullSecrets={key}"))
	if diff := cmp.Diff([]string{"tessera-cleanup", "tessera-crds", "tessera-installer", "tessera-test"}, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("pods of the chart (-want +got):\n%s", diff)
	}
	for name, pod := range found {
		spec := pod.Spec
		if s := spec.SecurityContext; !*s.RunAsNonRoot || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: %+v", name, s)
		}
		if spec.HostNetwork || spec.HostPID || spec.HostIPC || spec.ServiceAccountName == "" || len(spec.ImagePullSecrets) != 1 {
			t.Errorf("%s: on the host, without an account or without pull secrets", name)
		}
		for _, v := range spec.Volumes {
			if v.HostPath != nil || v.Secret != nil {
				t.Errorf("%s mounts %s", name, v.Name)
			}
		}
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			s := c.SecurityContext
			if s == nil || s.Privileged != nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || len(s.Capabilities.Add) > 0 ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s/%s: %+v", name, c.Name, s)
			}
		}
	}
}

// TestChartSurvivesANode: there is a standby installer, and a drain leaves one running.
func TestChartSurvivesANode(t *testing.T) {
	objects := rendered(t)
	deployment := one[*appsv1.Deployment](t, objects)
	if *deployment.Spec.Replicas != 2 || deployment.Spec.Template.Spec.Affinity.PodAntiAffinity == nil || !slices.Contains(deployment.Spec.Template.Spec.Containers[0].Args, "--leader-elect") {
		t.Error("all replicas can run on one node, or two are active at once")
	}
	if diff := cmp.Diff(deployment.Spec.Selector, one[*policyv1.PodDisruptionBudget](t, objects).Spec.Selector); diff != "" {
		t.Errorf("pods of the budget (-Deployment's +budget's):\n%s", diff)
	}
	if got := deployment.Spec.Template.Spec.Containers[0].Image; got != bundle.InstallerImage {
		t.Errorf("image %s, want %s", got, bundle.InstallerImage)
	}
}

// TestChartHasStandardLabels: all objects have the labels that Helm and Kubernetes recommend, which select what a release has installed.
func TestChartHasStandardLabels(t *testing.T) {
	want := map[string]string{
		"app.kubernetes.io/part-of": "tessera", "app.kubernetes.io/instance": chart.Release, "app.kubernetes.io/version": "dev", "app.kubernetes.io/managed-by": "Helm",
		"helm.sh/chart": "tessera-0.1.0",
	}
	for _, object := range templated(t, "tessera-system") {
		got := object.GetLabels()
		delete(got, "app.kubernetes.io/name")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("labels of %s %s (-want +got):\n%s", object.GetKind(), object.GetName(), diff)
		}
	}
}

// TestChartTestGetsAGPU: the pod of `helm test` computes on a device of a claim, wherever one is free.
func TestChartTestGetsAGPU(t *testing.T) {
	objects := rendered(t, "--set", "installer.nodeSelector.role=infra")
	pod, template := one[*corev1.Pod](t, objects), one[*resourceapi.ResourceClaimTemplate](t, objects)
	if got := *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName; got != template.Name || pod.Spec.Containers[0].Resources.Claims[0].Name != pod.Spec.ResourceClaims[0].Name {
		t.Errorf("claim template %s, want %s", got, template.Name)
	}
	if got := pod.Spec.SchedulerName; got != "tessera-scheduler" {
		t.Errorf("scheduler %q, want that of the devices", got)
	}
	if got := one[*corev1.Pod](t, rendered(t, "--set", "clusterPolicy.scheduler.mode=Replace")).Spec.SchedulerName; got != "" {
		t.Errorf("scheduler %q, which does not run", got)
	}
	if len(pod.Spec.NodeSelector) > 0 || len(pod.Spec.Tolerations) != 1 {
		t.Errorf("node selector %v, tolerations %v: nodes with GPUs may have other labels and taints than the installer's", pod.Spec.NodeSelector, pod.Spec.Tolerations)
	}
	classes := map[string]bool{}
	for _, class := range find[*resourceapi.DeviceClass](objects) {
		classes[class.Name] = true
	}
	for _, alternative := range template.Spec.Spec.Devices.Requests[0].FirstAvailable {
		if !classes[alternative.DeviceClassName] {
			t.Errorf("the chart has no DeviceClass %s", alternative.DeviceClassName)
		}
	}
}

// TestChartIsTheManifests: the manifests of deployments/ are in the chart unchanged, in the release's namespace.
func TestChartIsTheManifests(t *testing.T) {
	const namespace = "gpus"
	have := map[string]*unstructured.Unstructured{}
	for _, object := range templated(t, namespace) {
		object.SetLabels(nil) // the chart's; the manifests have none
		have[object.GetKind()+" "+object.GetName()+" "+object.GetNamespace()] = object
	}
	folders := map[string][]string{
		"deployments":       {"rbac.yaml", "admission.yaml", "admission-mps.yaml", "admission-monitor.yaml", "admission-params.yaml", "deviceclasses.yaml", "deviceclasses-profiles.yaml"},
		schedulerCommon:     {"rbac.yaml", "admission.yaml"},
		schedulerAdditional: {"schedulername.yaml"},
	}
	compared := 0
	for folder, list := range folders {
		for _, name := range list {
			text, err := os.ReadFile(filepath.Join(root(t), folder, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range strings.Split(strings.ReplaceAll(string(text), "tessera-system", namespace), "\n---\n") {
				want := &unstructured.Unstructured{}
				if err := sigsyaml.Unmarshal([]byte(document), &want.Object); err != nil {
					t.Fatal(err)
				}
				compared++
				got := have[want.GetKind()+" "+want.GetName()+" "+want.GetNamespace()]
				if got == nil {
					t.Errorf("%s/%s: the chart has no %s %s", folder, name, want.GetKind(), want.GetName())
					continue
				}
				if diff := cmp.Diff(want.Object, got.Object); diff != "" {
					t.Errorf("%s/%s: %s %s (-manifest +chart):\n%s", folder, name, want.GetKind(), want.GetName(), diff)
				}
			}
		}
	}
	if compared < 50 {
		t.Errorf("%d objects compared: the manifests or this test have changed", compared)
	}
}

// TestChartIsTheComponent: with the name of NVIDIA's driver, the chart has what the kustomize component makes of the manifests.
func TestChartIsTheComponent(t *testing.T) {
	const namespace = "tessera-system"
	have := map[string]*unstructured.Unstructured{}
	for _, object := range templated(t, namespace, "--set", "clusterPolicy.nodeAgent.config.driverName="+v1alpha1.NVIDIADriverName) {
		object.SetLabels(nil) // the chart's; the manifests have none
		have[object.GetKind()+" "+object.GetName()+" "+object.GetNamespace()] = object
	}
	compared := 0
	for file, objects := range withComponent(t) {
		for _, object := range objects {
			of, err := meta.Accessor(object)
			if err != nil {
				t.Fatal(err)
			}
			kind := object.GetObjectKind().GroupVersionKind().Kind
			there := have[kind+" "+of.GetName()+" "+of.GetNamespace()]
			if there == nil {
				continue
			}
			got := reflect.New(reflect.TypeOf(object).Elem()).Interface()
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(there.Object, got); err != nil {
				t.Fatal(err)
			}
			compared++
			if diff := cmp.Diff(object, got); diff != "" {
				t.Errorf("%s: %s %s (-component +chart):\n%s", file, kind, of.GetName(), diff)
			}
		}
	}
	if compared < 50 || have["DeviceClass gpu.nvidia.com "] == nil {
		t.Errorf("%d objects compared: the manifests or this test have changed", compared)
	}
}

// TestChartLeavesTheSchedulerOut: without it, no other scheduler is blocked from allocating; in the place of the cluster's own, nothing is
// reserved for it.
func TestChartLeavesTheSchedulerOut(t *testing.T) {
	names := func(flags ...string) []string {
		var found []string
		for _, o := range templated(t, "tessera-system", flags...) {
			if n := o.GetName(); strings.HasPrefix(n, "allocations.") || strings.HasPrefix(n, "schedulername.") {
				found = append(found, o.GetKind())
			}
		}
		slices.Sort(found)
		return found
	}
	allocations := []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
	additional := slices.Concat([]string{"MutatingAdmissionPolicy"}, allocations) // without the binding, which the installer creates
	for _, test := range []struct {
		flag string
		want []string
	}{
		{"clusterPolicy.scheduler.mode=Additional", additional}, {"clusterPolicy.scheduler.enabled=true", additional},
		{"clusterPolicy.scheduler.mode=Replace", allocations}, {"clusterPolicy.scheduler.enabled=false", nil},
	} {
		if diff := cmp.Diff(test.want, names("--set", test.flag)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.flag, diff)
		}
	}
}

// TestChartClosesTheNetwork: every pod except a driver's has a policy for its connections; only ports of metrics are open to others.
func TestChartClosesTheNetwork(t *testing.T) {
	policies := find[*networkingv1.NetworkPolicy](rendered(t))
	open := map[string]int32{}
	for _, p := range policies {
		if diff := cmp.Diff(map[string]string{"app.kubernetes.io/name": p.Name}, p.Spec.PodSelector.MatchLabels); diff != "" {
			t.Errorf("pods of %s (-want +got):\n%s", p.Name, diff)
		}
		if !slices.Equal(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
			t.Errorf("%s restricts %v", p.Name, p.Spec.PolicyTypes)
		}
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				open[p.Name] = port.Port.IntVal
			}
		}
		for _, rule := range p.Spec.Egress {
			if len(rule.Ports) == 0 {
				t.Errorf("%s allows all connections", p.Name)
			}
		}
	}
	want := map[string]int32{"tessera-installer": 8080, "tessera-node": 8080, "tessera-scheduler": 10259, "tessera-dcgm-exporter": 9400, "tessera-dcgm": 5555}
	if diff := cmp.Diff(want, open); diff != "" {
		t.Errorf("open ports (-want +got):\n%s", diff)
	}
	if len(find[*networkingv1.NetworkPolicy](rendered(t, "--set", "networkPolicy.enabled=false"))) != 0 {
		t.Error("network policies although they are disabled")
	}
}

// TestChartProbesTheInstaller: kubelet probes the address on which the installer serves its health.
func TestChartProbesTheInstaller(t *testing.T) {
	for _, d := range find[*appsv1.Deployment](rendered(t)) {
		if d.Name != "tessera-installer" {
			continue
		}
		c := d.Spec.Template.Spec.Containers[0]
		if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet == nil {
			t.Fatal("no probe")
		}
		i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == c.LivenessProbe.HTTPGet.Port.StrVal })
		if i < 0 || !slices.Contains(c.Args, fmt.Sprintf("--health-address=:%d", c.Ports[i].ContainerPort)) || c.LivenessProbe.HTTPGet.Path != "/healthz" {
			t.Errorf("probe %v, ports %v, arguments %v", c.LivenessProbe.HTTPGet, c.Ports, c.Args)
		}
		return
	}
	t.Error("no installer")
}

// TestChartAdmitsNoOtherNamespaces: by default only pods of the same namespace may connect, and metricsFrom adds the namespaces with these labels to the
// ports of metrics.
func TestChartAdmitsNoOtherNamespaces(t *testing.T) {
	for team, flags := range map[string][]string{"": nil, "monitoring": {"--set", "networkPolicy.metricsFrom.team=monitoring"}} {
		for _, p := range find[*networkingv1.NetworkPolicy](rendered(t, flags...)) {
			var others []string
			for _, rule := range p.Spec.Ingress {
				if len(rule.From) == 0 || len(rule.Ports) == 0 {
					t.Errorf("%s admits all pods, or to all ports", p.Name)
				}
				for _, from := range rule.From {
					switch {
					case from.NamespaceSelector != nil:
						others = append(others, from.NamespaceSelector.MatchLabels["team"])
					case from.PodSelector == nil:
						t.Errorf("%s admits addresses", p.Name)
					}
				}
			}
			var want []string
			if team != "" && len(p.Spec.Ingress) > 0 && p.Name != "tessera-dcgm" {
				want = []string{team}
			}
			if diff := cmp.Diff(want, others); diff != "" {
				t.Errorf("%s, metricsFrom %q: admitted namespaces (-want +got):\n%s", p.Name, team, diff)
			}
		}
	}
}

// TestChartHooks: new kinds are installed before their objects, by a separate account, and no object of the release is removed before its
// operands.
func TestChartHooks(t *testing.T) {
	hooks := map[string]string{}
	for _, o := range templated(t, "tessera-system") {
		if hook := o.GetAnnotations()["helm.sh/hook"]; hook != "" {
			hooks[o.GetKind()+" "+o.GetName()] = hook
			if log := o.GetAnnotations()["helm.sh/hook-output-log-policy"]; (o.GetKind() == "Job" || o.GetKind() == "Pod") && log != "hook-failed" {
				t.Errorf("%s fails without output: output-log-policy %q", o.GetName(), log)
			}
		}
	}
	const before = "pre-install,pre-upgrade"
	want := map[string]string{
		"ServiceAccount tessera-crds": before, "ClusterRole tessera-crds": before, "ClusterRoleBinding tessera-crds": before, "Job tessera-crds": before,
		"Job tessera-cleanup": "pre-delete", "ResourceClaimTemplate tessera-test": "test", "Pod tessera-test": "test",
	}
	if diff := cmp.Diff(want, hooks); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	args := func(flags ...string) []string {
		return pods(rendered(t, flags...))["tessera-cleanup"].Spec.Containers[0].Args
	}
	if slices.Contains(args(), "--drain") || !slices.Contains(args("--set", "cleanup.drain=true"), "--drain") {
		t.Errorf("cleanup: %v, and to drain %v", args(), args("--set", "cleanup.drain=true"))
	}
}

// TestChartRendersTheSame: a GitOps tool renders the chart without a cluster, again and again, and reports every difference as drift.
func TestChartRendersTheSame(t *testing.T) {
	h, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	for name, flags := range variants() {
		once, err := h.Template(t.Context(), "tessera-system", append([]string{"--include-crds"}, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		again, err := h.Template(t.Context(), "tessera-system", append([]string{"--include-crds", "--is-upgrade"}, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(once, again); diff != "" {
			t.Errorf("%s: two renderings differ:\n%s", name, diff)
		}
	}
	err = filepath.WalkDir(filepath.Join(h.Folder, "templates"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if found := regexp.MustCompile(`\{\{[^}]*\b(lookup|rand\w+|gen\w+|uuidv4|now|htpasswd)\b`).Find(text); found != nil {
			t.Errorf("%s has %s: its result depends on the cluster, on time or on chance", path, found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestChartPoliciesAreBound: a policy without a binding rejects nothing.
func TestChartPoliciesAreBound(t *testing.T) {
	objects := rendered(t)
	policies := find[*admissionregistrationv1.ValidatingAdmissionPolicy](objects)
	if len(policies) != 9 {
		t.Errorf("%d policies, want 9", len(policies))
	}
	for _, policy := range policies {
		binding := named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, policy.Name)
		if binding.Spec.PolicyName != policy.Name || !slices.Equal(binding.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
			t.Errorf("the binding of %s: %+v", policy.Name, binding.Spec)
		}
		if *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("%s admits a write when its evaluation fails", policy.Name)
		}
	}
}

// TestChartAccounts: accounts without permissions have no token either.
func TestChartAccounts(t *testing.T) {
	objects := rendered(t)
	bound := map[string]bool{}
	for _, b := range find[*rbacv1.ClusterRoleBinding](objects) {
		bound[b.Subjects[0].Name] = true
	}
	for _, b := range find[*rbacv1.RoleBinding](objects) {
		bound[b.Subjects[0].Name] = true
	}
	var accounts []string
	for _, a := range find[*corev1.ServiceAccount](objects) {
		accounts = append(accounts, a.Name)
		if silent := a.AutomountServiceAccountToken != nil && !*a.AutomountServiceAccountToken; silent == bound[a.Name] {
			t.Errorf("%s: bound %v, without a token %v", a.Name, bound[a.Name], silent)
		}
		if a.Namespace != "tessera-system" {
			t.Errorf("%s is in %s", a.Name, a.Namespace)
		}
	}
	slices.Sort(accounts)
	want := []string{
		"tessera-crds", "tessera-discovery", "tessera-driver", "tessera-installer", "tessera-monitor", "tessera-node", "tessera-scheduler", "tessera-validation",
		"tessera-vgpu-device-manager",
	}
	if diff := cmp.Diff(want, accounts); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
}

// TestChartIsNotTiedToANamespace: no object of the chart names another namespace than the release's.
func TestChartIsNotTiedToANamespace(t *testing.T) {
	for _, object := range templated(t, "gpus") {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "tessera-system") {
			t.Errorf("%s %s names tessera-system", object.GetKind(), object.GetName())
		}
		if n := object.GetNamespace(); n != "" && n != "gpus" && n != metav1.NamespaceSystem {
			t.Errorf("%s %s is in %s", object.GetKind(), object.GetName(), n)
		}
	}
}
