// Package catalog derives from the ClusterPolicy and the NVIDIADrivers what each node is to have: its operands, its driver and its agent pool.
package catalog

import (
	"sync"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Catalog is the ClusterPolicy and all NVIDIADrivers as read at one moment, with what is computed from their specs. It is safe for concurrent use and
// must not be modified: catalogs of the same specs share them.
type Catalog struct {
	// Policy and Drivers have their specs completed. Drivers are sorted by name.
	Policy  *v1alpha1.ClusterPolicy
	Drivers []v1alpha1.NVIDIADriver
	*computed
}

// computed is the part of a Catalog that changes only with the specs, and with the ConfigMaps and Secrets that they reference.
type computed struct {
	spec v1alpha1.ClusterPolicySpec
	// schedulerOff is whether the policy has tessera-scheduler and spec has not, because it cannot run in the cluster.
	schedulerOff bool
	drivers      []v1alpha1.NVIDIADriverSpec
	references   []string
	input        render.Input
	render       func(render.Input, render.DriverSet) (v1alpha1.DesiredDriver, error)

	mutex    sync.Mutex
	rendered map[DriverKey]RenderedDriver
}

// DriverKey identifies a driver: nodes with the same key get the same one.
type DriverKey struct {
	Owner string
	Host  render.Host
	VGPU  bool
}

// RenderedDriver is a driver for some nodes, or the error that prevents it.
type RenderedDriver struct {
	Key     DriverKey
	Set     render.DriverSet
	Desired v1alpha1.DesiredDriver
	Err     error
}

// New returns the catalog of policies without the contents of the ConfigMaps and Secrets that they reference. It completes the specs in place.
func New(policy *v1alpha1.ClusterPolicy, drivers []v1alpha1.NVIDIADriver) *Catalog {
	c := &Catalog{Policy: policy, Drivers: drivers, computed: complete(policy.Spec, drivers)}
	c.share()
	c.input.Policy = *policy
	return c
}

// SchedulerOff reports whether tessera-scheduler is enabled in the policy and switched off, because it cannot run in the cluster.
func (c *Catalog) SchedulerOff() bool { return c.schedulerOff }

// WithoutPolicy returns the catalog that applies where there is no ClusterPolicy: the defaults, with remediation off.
func WithoutPolicy() *Catalog {
	policy := &v1alpha1.ClusterPolicy{}
	policy.Spec.Remediation.Mode = v1alpha1.RemediationOff
	return New(policy, nil)
}

// complete returns the computed part of specs, without contents.
func complete(spec v1alpha1.ClusterPolicySpec, drivers []v1alpha1.NVIDIADriver) *computed {
	c := &computed{spec: spec.Complete(), render: render.Driver, rendered: map[DriverKey]RenderedDriver{}}
	var specs []v1alpha1.DriverSpec
	for _, d := range drivers {
		d.Spec.DriverSpec = d.Spec.Complete()
		c.drivers, specs = append(c.drivers, d.Spec), append(specs, d.Spec.DriverSpec)
	}
	c.references = render.References(c.spec, specs)
	return c
}

// share sets the specs of the objects to the completed ones.
func (c *Catalog) share() {
	c.Policy.Spec = c.spec
	for i := range c.Drivers {
		c.Drivers[i].Spec = c.drivers[i]
	}
}

// Input returns the input for rendering: namespace, policy, images and contents. The caller adds drivers, agents and the kinds of the cluster to its copy.
func (c *Catalog) Input() render.Input { return c.input }

// References reports whether a policy references the ConfigMap or Secret of this kind and name.
func (c *Catalog) References(kind, name string) bool {
	for _, reference := range c.references {
		if reference == kind+"/"+name {
			return true
		}
	}
	return false
}

// DriverFor returns the driver for a node with this assignment and hardware. It returns false where no driver container belongs, and as long as the
// hardware is unknown. Each driver is rendered once.
func (c *Catalog) DriverFor(a Assignment, hardware *v1alpha1.HardwareStatus) (RenderedDriver, bool) {
	if !a.InstallsDriver() || hardware == nil || hardware.OS == "" || hardware.HostDriver != "" && !a.VGPU {
		return RenderedDriver{}, false
	}
	key := DriverKey{Owner: a.Owner, Host: render.Host{OS: hardware.OS}, VGPU: a.VGPU}
	if a.Driver.UsePrecompiled {
		key.Host.Kernel = hardware.Kernel
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	known, ok := c.rendered[key]
	if !ok {
		known = RenderedDriver{Key: key, Set: render.DriverSet{Owner: a.Owner, Spec: a.Driver, VGPU: a.VGPU, Host: key.Host}}
		known.Desired, known.Err = c.render(c.input, known.Set)
		c.rendered[key] = known
	}
	return known, true
}
