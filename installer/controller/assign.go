package controller

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

// PolicyOwner owns the drivers of ClusterPolicy.
const PolicyOwner = "ClusterPolicy/" + v1alpha1.ClusterPolicyName

// defaultPool is the pool of nodes that no other chooses.
const defaultPool = "default"

// Assignment is what policies say of one node, whatever stands on it.
type Assignment struct {
	// Chosen is whether the policy chooses the node, optedOut whether its user does not want any operand.
	Chosen, OptedOut bool
	// NoGPUs is whether the node has no GPU.
	NoGPUs bool
	// Owner is who says which driver it gets; driver and upgrade are what that one says, complete.
	Owner   string
	Driver  v1alpha1.DriverSpec
	Upgrade v1alpha1.UpgradePolicy
	// VGPU and sandbox say what else the node is for.
	VGPU, Sandbox bool
	// disabled are the operands that a label of the node removes.
	disabled map[string]bool
	// AgentPool is that of the node agent, draName the DRA driver's name there, mode the MIG mode that it wants.
	AgentPool, DRADriver string
	MIGMode          v1alpha1.MIGMode
	// OffersMIG is whether its GPUs are offered in slices.
	OffersMIG bool
	// Conflict says what chooses the node twice, drivers names the NVIDIADrivers that do.
	Conflict string
	ConflictingDrivers  []string
}

// Managed reports whether operands belong on the node.
func (a Assignment) Managed() bool { return a.Chosen && !a.OptedOut && !a.NoGPUs }

// WithHardware is the assignment of a node with this hardware: where the discovery found no GPU, or finds none any more, no operand belongs. As long as it has
// not spoken there may be one.
func (a Assignment) WithHardware(hardware *v1alpha1.HardwareStatus) Assignment {
	a.NoGPUs = hardware != nil && hardware.GPUs == 0
	return a
}

// InstallsDriver reports whether a driver container belongs on the node.
func (a Assignment) InstallsDriver() bool {
	return a.Managed() && !a.Sandbox && !a.disabled["driver"] && (a.VGPU || a.Driver.On())
}

// Assign says what policies want of a node.
func (cat *Catalog) Assign(node *corev1.Node) Assignment {
	spec, set := cat.Policy.Spec, labels.Set(node.Labels)
	a := Assignment{
		Chosen:   spec.NodeSelector == nil || selectorMatches(spec.NodeSelector, set),
		OptedOut: set[v1alpha1.LabelOperands] == "false",
		disabled:      map[string]bool{},
		Sandbox:  spec.SandboxWorkloads.Enabled && selectorMatches(spec.SandboxWorkloads.NodeSelector, set),
		VGPU:     spec.VGPUManager.Chosen() && selectorMatches(spec.VGPUManager.NodeSelector, set),
	}
	for _, operand := range []string{"driver", "node-agent", "operator-validator"} {
		a.disabled[operand] = set[v1alpha1.LabelDeployPrefix+operand] == "false"
	}
	cat.assignDriver(&a, set)
	cat.assignPool(&a, set)
	if a.VGPU && a.Sandbox {
		a.Conflict = "sandboxWorkloads and vgpuManager both choose the node: let one of them leave it out"
	}
	return a
}

// assignDriver finds the one who says which driver the node gets.
func (cat *Catalog) assignDriver(a *Assignment, set labels.Set) {
	a.Owner, a.Driver, a.Upgrade = PolicyOwner, cat.Policy.Spec.Driver, cat.Policy.Spec.Upgrade
	if a.VGPU {
		a.Driver = v1alpha1.DriverSpec{Component: cat.Policy.Spec.VGPUManager.Component}.Complete()
		return
	}
	var selecting, defaults []int
	for i, d := range cat.Drivers {
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
		d := cat.Drivers[selecting[0]]
		a.Owner, a.Driver = d.Name, d.Spec.DriverSpec
		if d.Spec.Upgrade != nil {
			a.Upgrade = d.Spec.Upgrade.Complete()
		}
	default:
		for _, i := range selecting {
			a.ConflictingDrivers = append(a.ConflictingDrivers, cat.Drivers[i].Name)
		}
		a.Conflict = fmt.Sprintf("NVIDIADrivers %s all choose the node: change their nodeSelectors so that one does", strings.Join(a.ConflictingDrivers, ", "))
	}
}

// assignPool finds the pool of the node agent.
func (cat *Catalog) assignPool(a *Assignment, set labels.Set) {
	agent := cat.Policy.Spec.NodeAgent
	a.AgentPool, a.DRADriver, a.OffersMIG = defaultPool, draName(agent.Config), offersMIGDevices(agent.Config)
	if a.Sandbox {
		a.AgentPool = render.PoolSandbox
		return
	}
	var pools []string
	for _, pool := range agent.Pools {
		if selectorMatches(&pool.NodeSelector, set) {
			pools = append(pools, pool.Name)
			a.AgentPool, a.DRADriver, a.MIGMode = pool.Name, draName(pool.Config), pool.MIGMode
			if pool.Config != nil {
				a.OffersMIG = offersMIGDevices(pool.Config)
			}
		}
	}
	if len(pools) > 1 && a.Conflict == "" {
		a.Conflict = fmt.Sprintf("node pools %s all choose the node: change nodeAgent.pools so that one does", strings.Join(pools, ", "))
	}
}

// offersMIGDevices reports whether an agent with this configuration offers slices of GPUs.
func offersMIGDevices(config *v1alpha1.NodeConfigSpec) bool {
	return config == nil || len(config.Shapes) == 0 || slices.Contains(config.Shapes, v1alpha1.ShapeMIG)
}

// draName is the name of the DRA driver of an agent with this configuration.
func draName(config *v1alpha1.NodeConfigSpec) string {
	if config == nil || config.DriverName == "" {
		return v1alpha1.DriverName
	}
	return config.DriverName
}

// selectorMatches reports whether a selector chooses the labels; one that is absent, or that the API server would have refused, chooses none.
func selectorMatches(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// Wanted is the assignment as phases know it.
func (cat *Catalog) Wanted(a Assignment, hardware *v1alpha1.HardwareStatus) phase.Wanted {
	spec := cat.Policy.Spec
	w := phase.Wanted{
		Managed:    a.Managed(),
		Driver:     a.InstallsDriver(),
		Toolkit:    a.Managed() && spec.Toolkit.On(),
		Agent:      a.Managed() && spec.NodeAgent.On() && !a.disabled["node-agent"],
		Validator:  a.Managed() && spec.Validator.On() && !a.disabled["operator-validator"],
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
	if found, ok := cat.DriverFor(a, hardware); ok && found.Err == nil {
		w.Digest = found.Desired.Digest
	}
	return w
}
