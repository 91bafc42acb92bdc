package v1alpha1

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// TestComplete states every default of a policy whose administrator decided nothing.
func TestComplete(t *testing.T) {
	t.Parallel()
	const want = `
daemonSets: {priorityClassName: system-node-critical, tolerations: [{operator: Exists}]}
hostPaths: {root: /, driverInstallDir: /run/nvidia/driver, kubeletRoot: /var/lib/kubelet, cdi: /var/run/cdi}
discovery: {enabled: true, source: Auto}
driver:
  enabled: true
  kernelModuleType: auto
  rdma: {enabled: false}
  gds: {enabled: false}
  gdrcopy: {enabled: false}
  startupTimeout: 25m
  hostDriver: Keep
  minVersion: "535"
toolkit: {enabled: true, containerdConfig: /etc/containerd/config.toml}
nodeAgent: {enabled: true}
scheduler: {enabled: true, mode: Additional, replicas: 2}
dcgm: {enabled: false}
dcgmExporter: {enabled: true, interval: 15s}
validator: {enabled: true, mig: true, timeout: 10m}
featureLabels: {enabled: true}
vgpuManager: {enabled: false}
vgpuDeviceManager: {enabled: true, config: {default: default}}
upgrade:
  auto: true
  canary: 1
  soak: 5m
  maxParallel: 1
  maxUnavailable: 25%
  failureBudget: 1
  attempts: 2
  retryAfter: 5m
  drain: {timeout: 5m, deleteEmptyDir: true}
remediation:
  mode: Suggest
  maxParallel: 1
  attempts: 2
  reboot: true
  drain: {timeout: 5m, deleteEmptyDir: true}
`
	var wanted ClusterPolicySpec
	if err := yaml.UnmarshalStrict([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	got := ClusterPolicySpec{}.Complete()
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("the default policy (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(got, got.Complete()); diff != "" {
		t.Errorf("completed twice (-once +twice):\n%s", diff)
	}
}

// TestCompleteKeepsDecisions checks that what was decided stays, also where it is the empty value of its type.
func TestCompleteKeepsDecisions(t *testing.T) {
	t.Parallel()
	decided := ClusterPolicySpec{
		DaemonSets:   DaemonSetsSpec{Tolerations: []corev1.Toleration{{Key: "gpu"}}, PriorityClassName: "mine"},
		HostPaths:    HostPathsSpec{Root: "/host", DriverInstallDir: "/drv", KubeletRoot: "/kubelet", CDI: "/cdi", Proc: "/p", Sys: "/s", Dev: "/d"},
		Discovery:    DiscoverySpec{Component: Component{Enabled: new(false)}, Source: DiscoverScan},
		Toolkit:      ToolkitSpec{Component: Component{Enabled: new(false)}, ContainerdConfig: "/etc/k3s/config.toml"},
		Scheduler:    SchedulerSpec{Component: Component{Enabled: new(false)}, Mode: SchedulerReplace, Replicas: new(int32(1))},
		DCGM:         Component{Enabled: new(true)},
		DCGMExporter: ExporterSpec{Component: Component{Enabled: new(false)}, Interval: &metav1.Duration{Duration: time.Minute}},
		Validator:    ValidatorSpec{Component: Component{Enabled: new(false)}, MIG: new(false), Timeout: &metav1.Duration{Duration: time.Hour}},
		NodeAgent: NodeAgentSpec{Component: Component{Enabled: new(false)}, Config: &NodeConfigSpec{Shares: 3}, Pools: []NodePool{
			{Name: "own", Config: &NodeConfigSpec{Shares: 7}},
		}},
		FeatureLabels:     FeatureLabelsSpec{Enabled: new(false)},
		VGPUManager:       VGPUManagerSpec{Component: Component{Enabled: new(true)}},
		VGPUDeviceManager: VGPUDeviceManagerSpec{Component: Component{Enabled: new(false)}, Config: VGPUConfigSpec{Default: "A40-8Q"}},
		Driver: DriverSpec{
			Component: Component{Enabled: new(false)}, KernelModuleType: ModulesOpen, HostDriver: HostDriverRefuse, MinVersion: "570",
			RDMA: RDMASpec{Component: Component{Enabled: new(true)}}, GDS: Component{Enabled: new(true)}, GDRCopy: Component{Enabled: new(true)},
			StartupTimeout: &metav1.Duration{Duration: time.Minute},
		},
		Upgrade: UpgradePolicy{
			Auto: new(false), Canary: new(intstr.FromInt32(0)), Soak: &metav1.Duration{}, MaxParallel: new(int32(0)),
			MaxUnavailable: new(intstr.FromInt32(9)), FailureBudget: new(intstr.FromInt32(0)), Attempts: new(int32(1)),
			RetryAfter: &metav1.Duration{Duration: time.Second},
			Drain:      DrainSpec{Timeout: &metav1.Duration{Duration: time.Second}, DeleteEmptyDir: new(false)},
			Window:     &MaintenanceWindow{Days: []string{"Sat"}, Start: "22:00", TimeZone: "Europe/Berlin"},
		},
		Remediation: RemediationSpec{
			Mode: RemediationOff, MaxParallel: new(int32(9)), Attempts: new(int32(1)), Reboot: new(false),
			Drain: DrainSpec{Timeout: &metav1.Duration{Duration: time.Second}, DeleteEmptyDir: new(false)},
		},
	}
	if diff := cmp.Diff(decided, decided.Complete()); diff != "" {
		t.Errorf("decisions changed (-decided +completed):\n%s", diff)
	}
}

// TestCompleteParts checks the defaults that hang on other fields, and that the original keeps its memory.
func TestCompleteParts(t *testing.T) {
	t.Parallel()
	spec := ClusterPolicySpec{
		NodeAgent: NodeAgentSpec{Config: &NodeConfigSpec{Shares: 3}, Pools: []NodePool{{Name: "a"}, {Name: "b"}}},
		Upgrade:   UpgradePolicy{Window: &MaintenanceWindow{Start: "22:00"}},
	}
	got := spec.Complete()
	for _, pool := range got.NodeAgent.Pools {
		if pool.Config == nil || pool.Config.Shares != 3 {
			t.Errorf("pool %s without a config has %+v, want that of nodeAgent", pool.Name, pool.Config)
		}
	}
	if w := got.Upgrade.Window; w.TimeZone != "UTC" || len(w.Days) != 7 {
		t.Errorf("the window is %+v, want UTC on seven days", w)
	}
	got.NodeAgent.Pools[0].Config.Shares, got.Upgrade.Window.Start = 9, "00:00"
	if spec.NodeAgent.Config.Shares != 3 || got.NodeAgent.Pools[1].Config.Shares != 3 || spec.Upgrade.Window.Start != "22:00" || spec.NodeAgent.Pools[0].Config != nil {
		t.Errorf("a change of the completed spec changed the original, or another pool: %+v", spec)
	}
}
