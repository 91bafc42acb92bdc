package catalog

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// PolicyOwner is the owner of drivers that the ClusterPolicy configures; other owners are names of NVIDIADrivers.
const PolicyOwner = "ClusterPolicy/" + v1alpha1.ClusterPolicyName

// defaultPool is the agent pool of nodes that no pool of the policy selects.
const defaultPool = "default"

// The components that a user can switch off on a node, as its labels nvidia.com/gpu.deploy.<component> name them.
const (
	componentDriver    = "driver"
	componentAgent     = "node-agent"
	componentValidator = "operator-validator"
)

// Assignment is what policies want of one node, whatever runs there.
type Assignment struct {
	// Chosen is whether the policy selects the node, OptedOut whether a label of the node refuses all operands.
	Chosen, OptedOut bool
	// NoGPUs is whether discovery found no GPU on the node.
	NoGPUs bool
	// Owner configures the node's driver: PolicyOwner or the name of an NVIDIADriver. Driver and Upgrade are its specs, completed.
	Owner   string
	Driver  v1alpha1.DriverSpec
	Upgrade v1alpha1.UpgradePolicy
	// VGPU is whether the node gets the vGPU host driver, Sandbox whether its GPUs are for virtual machines.
	VGPU, Sandbox bool
	// disabled has the components that labels of the node switch off.
	disabled map[string]bool
	// AgentPool is the node agent's pool, DRADriver the name of its DRA driver, MIGMode the MIG mode that the pool requires.
	AgentPool, DRADriver string
	MIGMode              v1alpha1.MIGMode
	// OffersMIG is whether the agent offers MIG devices.
	OffersMIG bool
	// Conflict is why policies contradict each other about the node; ConflictingDrivers are the NVIDIADrivers that all select it.
	Conflict           string
	ConflictingDrivers []string
}

// Managed reports whether operands belong on the node.
func (a Assignment) Managed() bool { return a.Chosen && !a.OptedOut && !a.NoGPUs }

// WithHardware returns the assignment for the hardware that discovery reported: no operand belongs on a node without a GPU. Before the first report,
// with nil, the node may have one.
func (a Assignment) WithHardware(hardware *v1alpha1.HardwareStatus) Assignment {
	a.NoGPUs = hardware != nil && hardware.GPUs == 0
	return a
}

// InstallsDriver reports whether a driver container belongs on the node.
func (a Assignment) InstallsDriver() bool {
	return a.Managed() && !a.Sandbox && !a.disabled[componentDriver] && (a.VGPU || a.Driver.On())
}

// DriverOperand returns the name of the operand that installs the node's driver.
func (a Assignment) DriverOperand() string {
	if a.VGPU {
		return render.OperandVGPUManager
	}
	return render.OperandDriver
}

// Assign returns what policies want of a node.
func (c *Catalog) Assign(node *corev1.Node) Assignment {
	spec, set := c.Policy.Spec, labels.Set(node.Labels)
	a := Assignment{
		Chosen:   spec.NodeSelector == nil || selectorMatches(spec.NodeSelector, set),
		OptedOut: set[v1alpha1.LabelOperands] == "false",
		disabled: map[string]bool{},
		Sandbox:  spec.SandboxWorkloads.Enabled && selectorMatches(spec.SandboxWorkloads.NodeSelector, set),
		VGPU:     spec.VGPUManager.Chosen() && selectorMatches(spec.VGPUManager.NodeSelector, set),
	}
	for _, component := range []string{componentDriver, componentAgent, componentValidator} {
		a.disabled[component] = set[v1alpha1.LabelDeployPrefix+component] == "false"
	}
	c.assignDriver(&a, set)
	c.assignPool(&a, set)
	if a.VGPU && a.Sandbox {
		a.Conflict = "sandboxWorkloads and vgpuManager both select the node; change one of the nodeSelectors"
	}
	return a
}

// assignDriver sets the owner of the node's driver and its specs. An NVIDIADriver whose selector matches takes precedence over a default one, and
// both over the ClusterPolicy. Two of the same rank are a conflict.
func (c *Catalog) assignDriver(a *Assignment, set labels.Set) {
	a.Owner, a.Driver, a.Upgrade = PolicyOwner, c.Policy.Spec.Driver, c.Policy.Spec.Upgrade
	if a.VGPU {
		a.Driver = v1alpha1.DriverSpec{Component: c.Policy.Spec.VGPUManager.Component}.Complete()
		return
	}
	var selecting, defaults []int
	for i, d := range c.Drivers {
		switch {
		case d.Spec.Default:
			defaults = append(defaults, i)
		case selectorMatches(d.Spec.NodeSelector, set):
			selecting = append(selecting, i)
		}
	}
	if len(selecting) == 0 {
		selecting = defaults
	}
	switch len(selecting) {
	case 0:
	case 1:
		d := c.Drivers[selecting[0]]
		a.Owner, a.Driver = d.Name, d.Spec.DriverSpec
		if d.Spec.Upgrade != nil {
			a.Upgrade = d.Spec.Upgrade.Complete()
		}
	default:
		for _, i := range selecting {
			a.ConflictingDrivers = append(a.ConflictingDrivers, c.Drivers[i].Name)
		}
		a.Conflict = fmt.Sprintf("NVIDIADrivers %s all select the node; change their nodeSelectors so that only one does", strings.Join(a.ConflictingDrivers, ", "))
	}
}

// assignPool sets the pool of the node agent. A pool without a configuration has that of nodeAgent: the spec is complete.
func (c *Catalog) assignPool(a *Assignment, set labels.Set) {
	agent := c.Policy.Spec.NodeAgent
	a.AgentPool, a.DRADriver, a.OffersMIG = defaultPool, draName(agent.Config), offersMIGDevices(agent.Config)
	if a.Sandbox {
		a.AgentPool = render.PoolSandbox
		return
	}
	var pools []string
	for _, pool := range agent.Pools {
		if selectorMatches(&pool.NodeSelector, set) {
			pools = append(pools, pool.Name)
			a.AgentPool, a.DRADriver, a.OffersMIG, a.MIGMode = pool.Name, draName(pool.Config), offersMIGDevices(pool.Config), pool.MIGMode
		}
	}
	if len(pools) > 1 && a.Conflict == "" {
		a.Conflict = fmt.Sprintf("node pools %s all select the node; change nodeAgent.pools so that only one does", strings.Join(pools, ", "))
	}
}

// offersMIGDevices reports whether an agent with this configuration offers MIG devices.
func offersMIGDevices(config *v1alpha1.NodeConfigSpec) bool {
	return config == nil || len(config.Shapes) == 0 || slices.Contains(config.Shapes, v1alpha1.ShapeMIG)
}

// draName returns the name of the DRA driver of an agent with this configuration.
func draName(config *v1alpha1.NodeConfigSpec) string {
	if config == nil || config.DriverName == "" {
		return v1alpha1.DriverName
	}
	return config.DriverName
}

// selectorMatches reports whether a selector selects the labels. One that is absent or invalid selects nothing.
func selectorMatches(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// Wanted returns an assignment as input of the phase table. A node with the vGPU host driver has no containers with GPUs: its driver has no CUDA, and its
// GPUs are for virtual machines. It gets neither agent nor validation nor toolkit.
func (c *Catalog) Wanted(a Assignment, hardware *v1alpha1.HardwareStatus) phase.Wanted {
	spec := c.Policy.Spec
	containers := a.Managed() && !a.VGPU
	w := phase.Wanted{
		Managed:    a.Managed(),
		Driver:     a.InstallsDriver(),
		Toolkit:    containers && spec.Toolkit.On(),
		Agent:      containers && spec.NodeAgent.On() && !a.disabled[componentAgent],
		Validator:  containers && spec.Validator.On() && !a.disabled[componentValidator],
		Sandbox:    a.Sandbox,
		MIGMode:    a.MIGMode,
		HostDriver: a.Driver.HostDriver,
		MinVersion: a.Driver.MinVersion,
		Conflict:   a.Conflict,
		Upgrade: phase.Upgrade{
			DriverTimeout: a.Driver.StartupTimeout.Duration, DrainTimeout: a.Upgrade.Drain.Timeout.Duration,
			ValidateTimeout: spec.Validator.Timeout.Duration,
		},
	}
	if limit := a.Upgrade.Drain.WaitTimeout; limit != nil {
		w.Upgrade.WaitTimeout = limit.Duration
	}
	if found, ok := c.DriverFor(a, hardware); ok && found.Err == nil {
		w.Digest = found.Desired.Digest
	}
	return w
}
