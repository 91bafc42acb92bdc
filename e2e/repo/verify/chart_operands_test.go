package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// operands are all objects that the installer renders from the chart's values with everything on. The flags are helm's.
func operands(t *testing.T, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	objects := rendered(t, flags...)
	yes := true
	on := v1alpha1.Component{Enabled: &yes}
	policy := *one[*v1alpha1.ClusterPolicy](t, objects)
	policy.Spec.Driver.GDS, policy.Spec.Driver.GDRCopy = on, on
	policy.Spec.DCGM, policy.Spec.DCGMExporter.ServiceMonitor, policy.Spec.Toolkit.RuntimeClass = on, true, "nvidia"
	policy.Spec.VGPUManager = v1alpha1.VGPUManagerSpec{Component: on, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"vgpu": "yes"}}}
	in := render.Input{Namespace: "tessera-system", Policy: policy, ServiceMonitors: true, SchedulerAvailable: true, Drivers: []render.DriverSet{
		{Owner: "ClusterPolicy/default", Spec: policy.Spec.Complete().Driver, Host: render.Host{OS: "debian12", Kernel: "6", Architecture: "amd64"}},
	}}
	if err := sigsyaml.UnmarshalStrict([]byte(named[*corev1.ConfigMap](t, objects, "tessera-installer-images").Data["images.yaml"]), &in.Images); err != nil {
		t.Fatal(err)
	}
	made, err := render.Objects(in)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for _, object := range made {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		fields := &unstructured.Unstructured{}
		if err := fields.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		all = append(all, fields)
	}
	return all
}

// template returns the pods of a workload.
func template(t *testing.T, object *unstructured.Unstructured) (corev1.PodTemplateSpec, bool) {
	t.Helper()
	var pod corev1.PodTemplateSpec
	fields, found, err := unstructured.NestedMap(object.Object, "spec", "template")
	if err != nil || !found || object.GetKind() == "ResourceClaimTemplate" {
		return pod, false
	}
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &pod); err != nil {
		t.Fatal(err)
	}
	return pod, true
}

// TestInstallerMayWriteWhatItRenders: the chart grants the installer permission for everything that it renders, and no
// account is missing.
func TestInstallerMayWriteWhatItRenders(t *testing.T) {
	objects := rendered(t)
	may := strings.Join(rights(t, objects, "tessera-installer"), "\n")
	var accounts []string
	for _, a := range find[*corev1.ServiceAccount](objects) {
		accounts = append(accounts, a.Name)
	}
	resources := map[string]string{
		"DaemonSet": "apps/daemonsets", "Deployment": "apps/deployments", "Service": "services", "ConfigMap": "configmaps",
		"ResourceClaimTemplate": "resource.k8s.io/resourceclaimtemplates", "PodDisruptionBudget": "policy/poddisruptionbudgets",
		"ServiceMonitor": "monitoring.coreos.com/servicemonitors", "RuntimeClass": "node.k8s.io/runtimeclasses", "DeviceTaintRule": "resource.k8s.io/devicetaintrules",
		"MutatingAdmissionPolicyBinding": "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
	}
	kinds := map[string]bool{}
	for _, object := range operands(t) {
		scope := object.GetNamespace()
		if scope == "" {
			scope = "*"
		}
		kinds[object.GetKind()] = true
		resource := scope + " " + resources[object.GetKind()]
		all, one := resource+": get list watch create patch delete", resource+"["+object.GetName()+"]: create patch delete"
		if !strings.Contains(may, all) && !strings.Contains(may, one) {
			t.Errorf("%s %s: the installer may not write it", object.GetKind(), object.GetName())
		}
		if pod, ok := template(t, object); ok && !slices.Contains(accounts, pod.Spec.ServiceAccountName) {
			t.Errorf("%s %s runs as %q, which is not in the chart", object.GetKind(), object.GetName(), pod.Spec.ServiceAccountName)
		}
	}
	for kind := range resources {
		if !kinds[kind] {
			t.Errorf("the installer renders no %s and needs no permission for it (it renders %v)", kind, slices.Sorted(maps.Keys(kinds)))
		}
	}
}

// privileged are the operands that work on hosts.
var privileged = []string{"tessera-driver", "tessera-node", "tessera-toolkit", "tessera-vgpu-manager", "tessera-vgpu-device-manager"}

// TestOperandsRunWithoutPrivileges checks all operands that do not work on hosts.
func TestOperandsRunWithoutPrivileges(t *testing.T) {
	seen := 0
	for _, object := range operands(t) {
		pod, ok := template(t, object)
		if !ok || slices.Contains(privileged, pod.Labels["app.kubernetes.io/name"]) {
			continue
		}
		seen++
		shared := pod.Spec.SecurityContext
		if pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC {
			t.Errorf("%s shares namespaces of the host", object.GetName())
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			s := c.SecurityContext
			if s == nil || s.Privileged != nil && *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
				s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s/%s: %+v, want no privileges and a read-only root", object.GetName(), c.Name, s)
				continue
			}
			profile := s.SeccompProfile
			if profile == nil && shared != nil {
				profile = shared.SeccompProfile
			}
			if profile == nil || profile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s/%s: seccomp %+v, want RuntimeDefault", object.GetName(), c.Name, profile)
			}
		}
	}
	if seen < 4 {
		t.Errorf("%d operands were checked, want discovery, scheduler, dcgm and its exporter", seen)
	}
}

// TestNetworkPoliciesFitTheOperands: a port that an operand serves is open, and every operand except the driver has a
// policy.
func TestNetworkPoliciesFitTheOperands(t *testing.T) {
	open := map[string][]int32{}
	for _, p := range find[*networkingv1.NetworkPolicy](rendered(t)) {
		open[p.Name] = []int32{}
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				open[p.Name] = append(open[p.Name], port.Port.IntVal)
			}
		}
	}
	for _, object := range operands(t) {
		pod, ok := template(t, object)
		name := pod.Labels["app.kubernetes.io/name"]
		if !ok || name == "tessera-driver" {
			continue
		}
		ports, ok := open[name]
		if !ok {
			t.Errorf("%s has no network policy", name)
		}
		for _, c := range pod.Spec.Containers {
			for _, p := range c.Ports {
				if !slices.Contains(ports, p.ContainerPort) {
					t.Errorf("%s serves %d, open is %v", name, p.ContainerPort, ports)
				}
			}
		}
	}
}

// TestNoMetricsAreOpen: every port that a container of the chart or of an operand has is known here, with what protects it. One that answers without
// authentication is closed to other namespaces by a NetworkPolicy, which has no effect on the network of the host.
func TestNoMetricsAreOpen(t *testing.T) {
	const authenticated, policy, harmless = "authenticated", "NetworkPolicy", "has no names of tenants"
	want := map[string]string{
		"tessera-installer metrics 8080": authenticated, // TestScrapesNeedTheRight of e2e/tests/installer
		"tessera-node metrics 8080":      authenticated, // TestScrapesNeedTheRight of e2e/tests/agent
		"tessera-scheduler https 10259":  authenticated, // the suite, "tessera-scheduler in addition to kube-scheduler"
		"tessera-installer health 8081":  harmless,
		"tessera-dcgm dcgm 5555":         policy, "tessera-dcgm-exporter metrics 9400": policy,
	}
	closed := map[string]bool{}
	for _, p := range find[*networkingv1.NetworkPolicy](rendered(t)) {
		closed[p.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"]] = true
	}
	seen := map[string]bool{}
	for _, object := range append(templated(t, "tessera-system"), operands(t)...) {
		if kind, _, _ := unstructured.NestedString(object.Object, "spec", "type"); object.GetKind() == "Service" && kind != "" && kind != string(corev1.ServiceTypeClusterIP) {
			t.Errorf("Service %s is of type %s", object.GetName(), kind)
		}
		pod, is := template(t, object)
		if !is {
			continue
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, port := range c.Ports {
				name := fmt.Sprintf("%s %s %d", pod.Labels["app.kubernetes.io/name"], port.Name, port.ContainerPort)
				protection, known := want[name]
				switch seen[name] = true; {
				case !known:
					t.Errorf("port %s of %s %s is not known", name, object.GetKind(), object.GetName())
				case protection == policy && (pod.Spec.HostNetwork || port.HostPort != 0 || !closed[pod.Labels["app.kubernetes.io/name"]]):
					t.Errorf("port %s is open", name)
				}
			}
		}
	}
	if len(seen) != len(want) {
		t.Errorf("ports %v, want %v", slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(want)))
	}
}
