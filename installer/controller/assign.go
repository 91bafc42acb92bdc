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

// policyOwner owns the drivers of ClusterPolicy.
const policyOwner = "ClusterPolicy/" + v1alpha1.ClusterPolicyName

// defaultPool is the pool of nodes that no other chooses.
const defaultPool = "default"

// assignment is what policies say of one node, whatever stands on it.
type assignment struct {
	// chosen is whether the policy chooses the node, optedOut whether its user does not want any operand.
	chosen, optedOut bool
	// empty is whether the node has no GPU.
	empty bool
	// owner is who says which driver it gets; driver and upgrade are what that one says, complete.
	owner   string
	driver  v1alpha1.DriverSpec
	upgrade v1alpha1.UpgradePolicy
	// vgpu and sandbox say what else the node is for.
	vgpu, sandbox bool
	// off are the operands that a label of the node removes.
	off map[string]bool
	// pool is that of the node agent, draName the DRA driver's name there, mode the MIG mode that it wants.
	pool, draName string
	mode          v1alpha1.MIGMode
	// slices is whether its GPUs are offered in slices.
	slices bool
	// conflict says what chooses the node twice, drivers names the NVIDIADrivers that do.
	conflict string
	drivers  []string
}

// managed reports whether operands belong on the node.
func (a assignment) managed() bool { return a.chosen && !a.optedOut && !a.empty }

// on is the assignment of a node with this hardware: where the discovery found no GPU, or finds none any more, no operand belongs. As long as it has
// not spoken there may be one.
func (a assignment) on(hardware *v1alpha1.HardwareStatus) assignment {
	a.empty = hardware != nil && hardware.GPUs == 0
	return a
}

// installs reports whether a driver container belongs on the node.
func (a assignment) installs() bool {
	return a.managed() && !a.sandbox && !a.off["driver"] && (a.vgpu || a.driver.On())
}

// assign says what policies want of a node.
func (cat *catalog) assign(node *corev1.Node) assignment {
	spec, set := cat.policy.Spec, labels.Set(node.Labels)
	a := assignment{
		chosen:   spec.NodeSelector == nil || matches(spec.NodeSelector, set),
		optedOut: set[v1alpha1.LabelOperands] == "false",
		off:      map[string]bool{},
		sandbox:  spec.SandboxWorkloads.Enabled && matches(spec.SandboxWorkloads.NodeSelector, set),
		vgpu:     spec.VGPUManager.Chosen() && matches(spec.VGPUManager.NodeSelector, set),
	}
	for _, operand := range []string{"driver", "node-agent", "operator-validator"} {
		a.off[operand] = set[v1alpha1.LabelDeployPrefix+operand] == "false"
	}
	cat.assignDriver(&a, set)
	cat.assignPool(&a, set)
	if a.vgpu && a.sandbox {
		a.conflict = "sandboxWorkloads and vgpuManager both choose the node: let one of them leave it out"
	}
	return a
}

// assignDriver finds the one who says which driver the node gets.
func (cat *catalog) assignDriver(a *assignment, set labels.Set) {
	a.owner, a.driver, a.upgrade = policyOwner, cat.policy.Spec.Driver, cat.policy.Spec.Upgrade
	if a.vgpu {
		a.driver = v1alpha1.DriverSpec{Component: cat.policy.Spec.VGPUManager.Component}.Complete()
		return
	}
	var selecting, defaults []int
	for i, d := range cat.drivers {
		switch {
		case d.Spec.Default:
			defaults = append(defaults, i)
		case matches(d.Spec.NodeSelector, set):
			selecting = append(selecting, i)
		}
	}
	if len(selecting) == 0 {
		selecting = defaults
	}
	switch len(selecting) {
	case 0:
	case 1:
		d := cat.drivers[selecting[0]]
		a.owner, a.driver = d.Name, d.Spec.DriverSpec
		if d.Spec.Upgrade != nil {
			a.upgrade = d.Spec.Upgrade.Complete()
		}
	default:
		for _, i := range selecting {
			a.drivers = append(a.drivers, cat.drivers[i].Name)
		}
		a.conflict = fmt.Sprintf("NVIDIADrivers %s all choose the node: change their nodeSelectors so that one does", strings.Join(a.drivers, ", "))
	}
}

// assignPool finds the pool of the node agent.
func (cat *catalog) assignPool(a *assignment, set labels.Set) {
	agent := cat.policy.Spec.NodeAgent
	a.pool, a.draName, a.slices = defaultPool, draName(agent.Config), offersSlices(agent.Config)
	if a.sandbox {
		a.pool = render.PoolSandbox
		return
	}
	var pools []string
	for _, pool := range agent.Pools {
		if matches(&pool.NodeSelector, set) {
			pools = append(pools, pool.Name)
			a.pool, a.draName, a.mode = pool.Name, draName(pool.Config), pool.MIGMode
			if pool.Config != nil {
				a.slices = offersSlices(pool.Config)
			}
		}
	}
	if len(pools) > 1 && a.conflict == "" {
		a.conflict = fmt.Sprintf("node pools %s all choose the node: change nodeAgent.pools so that one does", strings.Join(pools, ", "))
	}
}

// offersSlices reports whether an agent with this configuration offers slices of GPUs.
func offersSlices(config *v1alpha1.NodeConfigSpec) bool {
	return config == nil || len(config.Shapes) == 0 || slices.Contains(config.Shapes, v1alpha1.ShapeMIG)
}

// draName is the name of the DRA driver of an agent with this configuration.
func draName(config *v1alpha1.NodeConfigSpec) string {
	if config == nil || config.DriverName == "" {
		return v1alpha1.DriverName
	}
	return config.DriverName
}

// matches reports whether a selector chooses the labels; one that is absent, or that the API server would have refused, chooses none.
func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// wanted is the assignment as phases know it.
func (cat *catalog) wanted(a assignment, hardware *v1alpha1.HardwareStatus) phase.Wanted {
	spec := cat.policy.Spec
	w := phase.Wanted{
		Managed:    a.managed(),
		Driver:     a.installs(),
		Toolkit:    a.managed() && spec.Toolkit.On(),
		Agent:      a.managed() && spec.NodeAgent.On() && !a.off["node-agent"],
		Validator:  a.managed() && spec.Validator.On() && !a.off["operator-validator"],
		Sandbox:    a.sandbox,
		MIGMode:    a.mode,
		HostDriver: a.driver.HostDriver,
		MinVersion: a.driver.MinVersion,
		Conflict:   a.conflict,
		Upgrade: phase.Upgrade{
			DriverTimeout: a.driver.StartupTimeout.Duration, DrainTimeout: a.upgrade.Drain.Timeout.Duration,
			ValidateTimeout: spec.Validator.Timeout.Duration,
		},
	}
	if limit := a.upgrade.Drain.WaitTimeout; limit != nil {
		w.Upgrade.WaitTimeout = limit.Duration
	}
	if found, ok := cat.driver(a, hardware); ok && found.err == nil {
		w.Digest = found.driver.Digest
	}
	return w
}
