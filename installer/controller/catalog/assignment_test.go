package catalog_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Policies that contradict each other block the node: its message names them and what to change. An NVIDIADriver that selects the node and one that is the
// default do not contradict each other, and a node that only one of them selects is not blocked.
func TestContradictingPoliciesBlockTheNode(t *testing.T) {
	driver := func(name, pool string) v1alpha1.NVIDIADriver {
		d := v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if d.Spec.Default = pool == ""; pool != "" {
			d.Spec.NodeSelector = controllertest.InPool(pool)
		}
		return d
	}
	pools := v1alpha1.NodeAgentSpec{Pools: []v1alpha1.NodePool{
		{Name: "one", NodeSelector: *controllertest.InPool("gpu")}, {Name: "two", NodeSelector: *controllertest.InPool("gpu")},
	}}
	twoDrivers := []v1alpha1.NVIDIADriver{driver("a", "gpu"), driver("b", "gpu"), driver("c", "other")}
	tests := map[string]struct {
		spec    v1alpha1.ClusterPolicySpec
		drivers []v1alpha1.NVIDIADriver
		message string
		named   []string
		owner   string
	}{
		"nothing":                             {owner: catalog.PolicyOwner},
		"one NVIDIADriver":                    {drivers: []v1alpha1.NVIDIADriver{driver("a", "gpu"), driver("b", "other")}, owner: "a"},
		"an NVIDIADriver that is the default": {drivers: []v1alpha1.NVIDIADriver{driver("a", ""), driver("b", "gpu")}, owner: "b"},
		"two NVIDIADrivers": {
			drivers: twoDrivers, message: "NVIDIADrivers a, b all select the node; change their nodeSelectors so that only one does",
			named: []string{"a", "b"}, owner: catalog.PolicyOwner,
		},
		"two NVIDIADrivers that are the default": {
			drivers: []v1alpha1.NVIDIADriver{driver("a", ""), driver("b", "")}, message: "NVIDIADrivers a, b all select the node",
			named: []string{"a", "b"}, owner: catalog.PolicyOwner,
		},
		"two pools": {
			spec:    v1alpha1.ClusterPolicySpec{NodeAgent: pools},
			message: "node pools one, two all select the node; change nodeAgent.pools so that only one does", owner: catalog.PolicyOwner,
		},
		"two NVIDIADrivers and two pools": {
			spec: v1alpha1.ClusterPolicySpec{NodeAgent: pools}, drivers: twoDrivers, message: "NVIDIADrivers a, b all select the node",
			named: []string{"a", "b"}, owner: catalog.PolicyOwner,
		},
		"virtual machines and virtual GPUs": {
			spec: v1alpha1.ClusterPolicySpec{
				SandboxWorkloads: v1alpha1.SandboxWorkloadsSpec{Enabled: true, NodeSelector: controllertest.InPool("gpu")},
				VGPUManager:      v1alpha1.VGPUManagerSpec{Component: v1alpha1.Component{Enabled: new(true)}, NodeSelector: controllertest.InPool("gpu")},
			},
			message: "sandboxWorkloads and vgpuManager both select the node; change one of the nodeSelectors", owner: catalog.PolicyOwner,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := catalog.New(&v1alpha1.ClusterPolicy{Spec: test.spec}, test.drivers)
			a, d := c.Assign(controllertest.NodeInPool("gpu")), next(c, "gpu", "580.1")
			if blocked := d.Phase == v1alpha1.PhaseBlocked; blocked != (test.message != "") || !strings.Contains(d.Message, test.message) {
				t.Errorf("the node is %s: %q, want %q", d.Phase, d.Message, test.message)
			}
			if !slices.Equal(a.ConflictingDrivers, test.named) || a.Owner != test.owner {
				t.Errorf("owner %s, contradicting NVIDIADrivers %q", a.Owner, a.ConflictingDrivers)
			}
		})
	}
}

// A node's agent has the configuration of its pool, or that of the policy if the pool has none: the name of its DRA driver and its shapes. The two
// configurations are not merged.
func TestPoolWithoutConfigurationHasThatOfThePolicy(t *testing.T) {
	whole := []v1alpha1.Shape{v1alpha1.ShapeGPU}
	tests := map[string]struct {
		policy, pool *v1alpha1.NodeConfigSpec
		driver       string
		mig          bool
	}{
		"neither":             {driver: v1alpha1.DriverName, mig: true},
		"the policy":          {policy: &v1alpha1.NodeConfigSpec{DriverName: "gpu.example.com", Shapes: whole}, driver: "gpu.example.com"},
		"the pool":            {pool: &v1alpha1.NodeConfigSpec{DriverName: "gpu.example.com", Shapes: whole}, driver: "gpu.example.com"},
		"the pool, no name":   {policy: &v1alpha1.NodeConfigSpec{DriverName: "gpu.example.com"}, pool: &v1alpha1.NodeConfigSpec{Shapes: whole}, driver: v1alpha1.DriverName},
		"the pool, no shapes": {policy: &v1alpha1.NodeConfigSpec{Shapes: whole}, pool: &v1alpha1.NodeConfigSpec{}, driver: v1alpha1.DriverName, mig: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.ClusterPolicySpec{NodeAgent: v1alpha1.NodeAgentSpec{
				Config: test.policy, Pools: []v1alpha1.NodePool{{Name: "own", NodeSelector: *controllertest.InPool("gpu"), Config: test.pool}},
			}}
			a := controllertest.Policies{Spec: spec}.Catalog().Assign(controllertest.NodeInPool("gpu"))
			if a.AgentPool != "own" || a.DRADriver != test.driver || a.OffersMIG != test.mig {
				t.Errorf("pool %s, DRA driver %s, MIG devices %t", a.AgentPool, a.DRADriver, a.OffersMIG)
			}
		})
	}
}

// The driver of a node with virtual GPUs is installed by the DaemonSet of vgpuManager, that of any other node by the DaemonSet of the driver.
func TestDriverOperand(t *testing.T) {
	spec := v1alpha1.ClusterPolicySpec{VGPUManager: v1alpha1.VGPUManagerSpec{
		Component: v1alpha1.Component{Enabled: new(true), Image: "registry.example.com/vgpu:580.1"}, NodeSelector: controllertest.InPool("vgpu"),
	}}
	spec.Driver.Image, spec.Driver.Version = "registry.example.com/driver", "580.1"
	c, hardware := controllertest.Policies{Spec: spec}.Catalog(), &v1alpha1.HardwareStatus{GPUs: 1, OS: "ubuntu24.04", Kernel: "6.8"}
	for pool, want := range map[string][2]string{
		"gpu":  {render.OperandDriver, "registry.example.com/driver:580.1-ubuntu24.04"},
		"vgpu": {render.OperandVGPUManager, "registry.example.com/vgpu:580.1"},
	} {
		a := c.Assign(controllertest.NodeInPool(pool))
		found, ok := c.DriverFor(a, hardware)
		if !ok || found.Err != nil {
			t.Fatalf("%s: %t, error %v", pool, ok, found.Err)
		}
		if got := a.DriverOperand(); got != want[0] || !strings.HasPrefix(found.Desired.Image, want[1]) {
			t.Errorf("%s: operand %s with the image %s, want %s with %s", pool, got, found.Desired.Image, want[0], want[1])
		}
	}
}

// The host driver for virtual GPUs has no CUDA: its nodes get no agent, no validation and no toolkit, and are Ready with the driver alone, as NVIDIA's
// GPU Operator deploys only its vGPU managers there.
func TestNodesWithVirtualGPUsRunNoContainersWithGPUs(t *testing.T) {
	spec := v1alpha1.ClusterPolicySpec{VGPUManager: v1alpha1.VGPUManagerSpec{
		Component: v1alpha1.Component{Enabled: new(true), Image: "registry.example.com/vgpu:580.1"}, NodeSelector: controllertest.InPool("vgpu"),
	}}
	c, hardware := controllertest.Policies{Spec: spec}.Catalog(), &v1alpha1.HardwareStatus{GPUs: 1, OS: "ubuntu24.04", Kernel: "6.8", BootID: "boot"}
	w := c.Wanted(c.Assign(controllertest.NodeInPool("vgpu")), hardware)
	if !w.Driver || w.Agent || w.Validator || w.Toolkit {
		t.Errorf("driver %t, agent %t, validator %t, toolkit %t", w.Driver, w.Agent, w.Validator, w.Toolkit)
	}
	if w := c.Wanted(c.Assign(controllertest.NodeInPool("gpu")), hardware); !w.Agent || !w.Validator || !w.Toolkit {
		t.Errorf("on other nodes: agent %t, validator %t, toolkit %t", w.Agent, w.Validator, w.Toolkit)
	}
	desired := v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: w.Digest}
	decided := phase.Next(phase.Observed{
		Now: time.Unix(0, 0), Wanted: w, Spec: v1alpha1.GPUNodeSpec{Driver: &desired},
		Status: v1alpha1.GPUNodeStatus{Hardware: hardware, LastGoodDriver: &desired, Validated: &v1alpha1.Validated{BootID: "boot", Digest: w.Digest}}, Node: phase.Node{
			Exists: true, Ready: true, BootID: "boot", Labels: phase.Labels{Driver: v1alpha1.DriverLabelValue(w.Digest), Ready: true},
		},
		Driver: phase.Pod{State: phase.PodReady, Digest: w.Digest},
	})
	if decided.Phase != v1alpha1.PhaseReady {
		t.Errorf("with its driver the node is %s, %s: %s", decided.Phase, decided.Reason, decided.Message)
	}
}

// Nodes with the same driver have the same digest. With usePrecompiled nodes of different kernels have different drivers. A driver that cannot be rendered
// has no digest, and its error names what is missing.
func TestDigestOfTheDriver(t *testing.T) {
	tests := map[string]struct {
		driver v1alpha1.DriverSpec
		same   bool
		err    string
	}{
		"compiled on the node":    {driver: v1alpha1.DriverSpec{Component: v1alpha1.Component{Image: "driver"}, Version: "580.1"}, same: true},
		"compiled for the kernel": {driver: v1alpha1.DriverSpec{Component: v1alpha1.Component{Image: "driver"}, Version: "580", UsePrecompiled: true}},
		"with a ConfigMap that is missing": {
			driver: v1alpha1.DriverSpec{Component: v1alpha1.Component{Image: "driver"}, Version: "580.1", RepoConfig: "mirror"}, same: true, err: "mirror",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := controllertest.Policies{Spec: v1alpha1.ClusterPolicySpec{Driver: test.driver}}.Catalog()
			a := c.Assign(controllertest.NodeInPool("gpu"))
			digests := map[string]bool{}
			for _, kernel := range []string{"6.8.0-1", "6.8.0-2"} {
				hardware := &v1alpha1.HardwareStatus{GPUs: 1, OS: "ubuntu24.04", Kernel: kernel}
				digest := c.Wanted(a, hardware).Digest
				digests[digest] = true
				found, ok := c.DriverFor(a, hardware)
				if failed := found.Err != nil; !ok || failed != (test.err != "") || failed != (digest == "") || failed && !strings.Contains(found.Err.Error(), test.err) {
					t.Errorf("kernel %s: digest %q, error %v", kernel, digest, found.Err)
				}
			}
			if same := len(digests) == 1; same != test.same {
				t.Errorf("digests %v", digests)
			}
		})
	}
}

// Without a ClusterPolicy no GPU is taken out of service, and the other settings have their defaults.
func TestWithoutAPolicyRemediationIsOff(t *testing.T) {
	c := catalog.WithoutPolicy()
	if spec := c.Policy.Spec; spec.Remediation.Mode != v1alpha1.RemediationOff || spec.Validator.Timeout == nil || spec.Upgrade.Drain.Timeout == nil {
		t.Errorf("the spec is %+v", spec)
	}
	if a := c.Assign(controllertest.NodeInPool("gpu")); a.DRADriver != v1alpha1.DriverName || a.Owner != catalog.PolicyOwner || a.Conflict != "" {
		t.Errorf("the assignment is %+v", a)
	}
}
