package recipe

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/lab/address"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

func cluster() Cluster {
	return Cluster{
		Plan:          address.Plan{Network: netip.MustParsePrefix("10.64.0.0/16")},
		Gates:         Gates{"B": false, "A": true},
		RuntimeConfig: "resource.k8s.io/v1beta2=true",
		Audit:         true,
	}
}

func worker(t *testing.T) machine.Spec {
	t.Helper()
	spec, err := Worker(cluster(), Node{
		Name: "node1", Address: netip.MustParseAddr("10.64.0.10"), Pods: netip.MustParsePrefix("10.64.128.0/24"), CNI: "/usr/lib/cni",
		Labels: map[string]string{"b": "2", "a": "1"}, Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}, Images: []string{"pause.tar"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestEveryNeedIsAnEarlierService(t *testing.T) {
	for _, spec := range []machine.Spec{ControlPlane(cluster()), worker(t)} {
		var known []string
		for _, service := range spec.Services {
			for _, need := range service.Needs {
				if !slices.Contains(known, need) {
					t.Errorf("%s on %s needs %s, which does not come before it", service.Name, spec.Name, need)
				}
			}
			if (service.Ready == machine.Probe{}) {
				t.Errorf("%s on %s is never ready", service.Name, spec.Name)
			}
			known = append(known, service.Name)
		}
	}
}

func TestNodeIsolationIsOn(t *testing.T) {
	args := find(t, ControlPlane(cluster()), APIServer).Args
	for _, want := range []string{
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-certificate-authority=" + CACertificate, "--kubelet-preferred-address-types=InternalIP",
		"--runtime-config=resource.k8s.io/v1beta2=true", "--feature-gates=A=true,B=false", "--audit-log-path=" + AuditLog,
	} {
		if !slices.Contains(args, want) {
			t.Errorf("kube-apiserver lacks %s", want)
		}
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "--token-auth-file") || strings.Contains(arg, "AlwaysAllow") {
			t.Errorf("kube-apiserver has the short cut %s", arg)
		}
	}
}

// TestPodControlGroups checks the setting for the version of kubelet that requires them.
func TestPodControlGroups(t *testing.T) {
	c := cluster()
	c.PodControlGroups = true
	spec, err := Worker(c, Node{Name: "node1", Address: netip.MustParseAddr("10.64.0.10"), Pods: netip.MustParsePrefix("10.64.128.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	var config kubeletconfig.KubeletConfiguration
	if err := yaml.UnmarshalStrict(content(t, spec, kubeletConfig), &config); err != nil {
		t.Fatal(err)
	}
	if !*config.CgroupsPerQOS {
		t.Error("pods have no control groups")
	}
}

// TestVirtualWorker checks that a virtual machine is configured as its administrator would: nothing of the host is masked, systemd has the control groups.
func TestVirtualWorker(t *testing.T) {
	spec, err := Worker(cluster(), Node{
		Name: "vm1", Address: netip.MustParseAddr("10.64.0.10"), Pods: netip.MustParsePrefix("10.64.128.0/24"), Virtual: true, Hardware: "/run/gpu/bin/boot",
	})
	if err != nil {
		t.Fatal(err)
	}
	var config kubeletconfig.KubeletConfiguration
	if err := yaml.UnmarshalStrict(content(t, spec, kubeletConfig), &config); err != nil {
		t.Fatal(err)
	}
	if config.CgroupDriver != "systemd" || config.CgroupsPerQOS != nil || config.FailCgroupV1 != nil || config.EnforceNodeAllocatable != nil || len(spec.Masks) > 0 {
		t.Errorf("kubelet has the lab's settings: %+v, masks %v", config, spec.Masks)
	}
	runtimes := string(content(t, spec, containerdConfig))
	for _, want := range []string{"runtimes.runc]", "runtimes.crun]", "SystemdCgroup = true"} {
		if !strings.Contains(runtimes, want) {
			t.Errorf("containerd lacks %s:\n%s", want, runtimes)
		}
	}
	if !slices.Contains(find(t, spec, Kubelet).Needs, Hardware) {
		t.Error("kubelet does not wait for the hardware")
	}
}

func TestKubeletConfiguration(t *testing.T) {
	var config kubeletconfig.KubeletConfiguration
	if err := yaml.UnmarshalStrict(content(t, worker(t), kubeletConfig), &config); err != nil {
		t.Fatal(err)
	}
	if *config.Authentication.Anonymous.Enabled || !*config.Authentication.Webhook.Enabled || config.Authorization.Mode != kubeletconfig.KubeletAuthorizationModeWebhook {
		t.Error("kubelet listens to whom the API server does not know")
	}
	if *config.FailCgroupV1 || *config.CgroupsPerQOS {
		t.Error("kubelet would not start on a host with cgroup v1")
	}
	want := []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(want, config.RegisterWithTaints); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]bool{"A": true, "B": false}, config.FeatureGates); diff != "" {
		t.Error(diff)
	}
	args := find(t, worker(t), Kubelet).Args
	for _, want := range []string{"--hostname-override=node1", "--node-ip=10.64.0.10", "--node-labels=a=1,b=2"} {
		if !slices.Contains(args, want) {
			t.Errorf("kubelet lacks %s", want)
		}
	}
}

func TestPodNetworkIsTheNodesOwn(t *testing.T) {
	var network struct {
		Plugins []struct {
			Type string
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(content(t, worker(t), "/etc/cni/net.d/10-lab.conflist"), &network); err != nil {
		t.Fatal(err)
	}
	if first := network.Plugins[0]; first.Type != "ptp" || first.IPAM.Ranges[0][0].Subnet != "10.64.128.0/24" {
		t.Errorf("pods get %+v", first)
	}
}

func TestHostSettingsAreMaskedNotSet(t *testing.T) {
	spec := worker(t)
	for _, setting := range spec.Settings {
		if !strings.HasPrefix(setting.Path, "/proc/sys/net/") { // per network namespace
			t.Errorf("%s is a setting of the whole host", setting.Path)
		}
	}
	var masked []string
	for _, mask := range spec.Masks {
		masked = append(masked, mask.Path)
	}
	for _, kubeletWrites := range []string{"/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops"} {
		if !slices.Contains(masked, kubeletWrites) {
			t.Errorf("kubelet would write %s of the host", kubeletWrites)
		}
	}
}

func TestSchedulingKeepsWhatIsShipped(t *testing.T) {
	const shipped = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: 7}
profiles: [{schedulerName: default-scheduler}]
`
	text, err := Scheduling([]byte(shipped), "stock")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"qps": 7.0, "kubeconfig": KubeconfigFile(Scheduler)},
		"profiles":         []any{map[string]any{"schedulerName": "default-scheduler"}, map[string]any{"schedulerName": "stock"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := Scheduling([]byte("profiles: []"), "stock"); err == nil {
		t.Error("a configuration without a connection is accepted")
	}
}

func find(t *testing.T, spec machine.Spec, name string) machine.Service {
	t.Helper()
	for _, service := range spec.Services {
		if service.Name == name {
			return service
		}
	}
	t.Fatalf("%s has no service %s", spec.Name, name)
	return machine.Service{}
}

func content(t *testing.T, spec machine.Spec, path string) []byte {
	t.Helper()
	for _, file := range spec.Files {
		if file.Path == path {
			return file.Content
		}
	}
	t.Fatalf("%s has no file %s", spec.Name, path)
	return nil
}
