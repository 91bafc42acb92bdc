package catalog_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// next is what becomes of a bare node of a pool whose host has a driver of this version.
func next(c *catalog.Catalog, pool, hostDriver string) phase.Decision {
	hardware := &v1alpha1.HardwareStatus{BootID: "b", GPUs: 1, OS: "ubuntu24.04", Kernel: "6.8", HostDriver: hostDriver}
	return phase.Next(phase.Observed{
		Now: time.Unix(0, 0), Wanted: c.Wanted(c.Assign(controllertest.NodeInPool(pool)), hardware), Status: v1alpha1.GPUNodeStatus{Hardware: hardware},
		Node: phase.Node{Exists: true, Ready: true, BootID: "b"},
	})
}

func TestFieldsDecideAboutNodes(t *testing.T) {
	off, on := v1alpha1.Component{Enabled: new(false)}, v1alpha1.Component{Enabled: new(true)}
	minute := &metav1.Duration{Duration: time.Minute}
	wanted := func(pool string, of func(phase.Wanted) any) func(*catalog.Catalog) any {
		return func(c *catalog.Catalog) any { return of(c.Wanted(c.Assign(controllertest.NodeInPool(pool)), nil)) }
	}
	for _, f := range []struct {
		field  string
		change func(*controllertest.Policies)
		look   func(*catalog.Catalog) any
		want   any
	}{
		{"spec.driver.enabled", func(p *controllertest.Policies) { p.Spec.Driver.Enabled = off.Enabled }, wanted("", func(w phase.Wanted) any { return w.Driver }), false},
		{"spec.driver.hostDriver", func(p *controllertest.Policies) { p.Spec.Driver.HostDriver = v1alpha1.HostDriverRefuse },
			func(c *catalog.Catalog) any { return next(c, "", "550.1").Reason }, phase.ReasonHostDriverRefused},
		{"spec.driver.minVersion", func(p *controllertest.Policies) { p.Spec.Driver.MinVersion = "560" },
			func(c *catalog.Catalog) any { return next(c, "", "550.1").Reason }, phase.ReasonHostDriverTooOld},
		{"spec.nodeAgent.pools[].nodeSelector", func(p *controllertest.Policies) {
			p.Spec.NodeAgent.Pools[0].NodeSelector = *controllertest.InPool("gpu")
		},
			func(c *catalog.Catalog) any { return c.Assign(controllertest.NodeInPool("gpu")).AgentPool }, "mig"},
		{"spec.nodeAgent.pools[].migMode", func(p *controllertest.Policies) { p.Spec.NodeAgent.Pools[0].MIGMode = v1alpha1.MIGEnabled },
			wanted("mig", func(w phase.Wanted) any { return w.MIGMode }), v1alpha1.MIGEnabled},
		{"spec.sandboxWorkloads.nodeSelector", func(p *controllertest.Policies) { p.Spec.SandboxWorkloads.NodeSelector = controllertest.InPool("gpu") },
			wanted("gpu", func(w phase.Wanted) any { return w.Sandbox && !w.Driver }), true},
		{"spec.vgpuManager.enabled", func(p *controllertest.Policies) { p.Spec.VGPUManager.Component = off },
			func(c *catalog.Catalog) any { return c.Assign(controllertest.NodeInPool("vgpu")).VGPU }, false},
		{"spec.vgpuManager.nodeSelector", func(p *controllertest.Policies) { p.Spec.VGPUManager.NodeSelector = controllertest.InPool("gpu") },
			func(c *catalog.Catalog) any { return c.Assign(controllertest.NodeInPool("gpu")).VGPU }, true},
		{"spec.validator.enabled", func(p *controllertest.Policies) { p.Spec.Validator.Component = off }, wanted("", func(w phase.Wanted) any { return w.Validator }), false},
		{"spec.upgrade.drain.timeout", func(p *controllertest.Policies) { p.Spec.Upgrade.Drain.Timeout = minute },
			wanted("", func(w phase.Wanted) any { return w.Upgrade.DrainTimeout }), time.Minute},
		{"spec.upgrade.drain.waitTimeout", func(p *controllertest.Policies) { p.Spec.Upgrade.Drain.WaitTimeout = minute },
			wanted("", func(w phase.Wanted) any { return w.Upgrade.WaitTimeout }), time.Minute},

		{"NVIDIADriver spec.enabled", func(p *controllertest.Policies) { p.Driver.Enabled = off.Enabled }, wanted("gpu", func(w phase.Wanted) any { return w.Driver }), false},
		{"NVIDIADriver spec.hostDriver", func(p *controllertest.Policies) { p.Driver.HostDriver = v1alpha1.HostDriverRefuse },
			func(c *catalog.Catalog) any { return next(c, "gpu", "550.1").Reason }, phase.ReasonHostDriverRefused},
		{"NVIDIADriver spec.minVersion", func(p *controllertest.Policies) { p.Driver.MinVersion = "560" },
			func(c *catalog.Catalog) any { return next(c, "gpu", "550.1").Reason }, phase.ReasonHostDriverTooOld},
		{"NVIDIADriver spec.nodeSelector", func(p *controllertest.Policies) { p.Driver.NodeSelector = controllertest.InPool("other") },
			func(c *catalog.Catalog) any { return c.Assign(controllertest.NodeInPool("other")).Owner }, "own"},
		{"NVIDIADriver spec.default", func(p *controllertest.Policies) { p.Driver.NodeSelector, p.Driver.Default = nil, true },
			func(c *catalog.Catalog) any { return c.Assign(controllertest.NodeInPool("other")).Owner }, "own"},
		{"NVIDIADriver spec.upgrade.drain.timeout", func(p *controllertest.Policies) {
			p.Driver.Upgrade = &v1alpha1.UpgradePolicy{Drain: v1alpha1.DrainSpec{Timeout: minute}}
		},
			wanted("gpu", func(w phase.Wanted) any { return w.Upgrade.DrainTimeout }), time.Minute},
	} {
		t.Run(f.field, func(t *testing.T) {
			p := controllertest.Policies{Driver: v1alpha1.NVIDIADriverSpec{NodeSelector: controllertest.InPool("gpu")}}
			p.Spec.NodeAgent.Pools = []v1alpha1.NodePool{{Name: "mig", NodeSelector: *controllertest.InPool("mig")}}
			p.Spec.SandboxWorkloads = v1alpha1.SandboxWorkloadsSpec{Enabled: true, NodeSelector: controllertest.InPool("vm")}
			p.Spec.VGPUManager = v1alpha1.VGPUManagerSpec{Component: on, NodeSelector: controllertest.InPool("vgpu")}
			if before := f.look(p.Catalog()); before == f.want {
				t.Fatalf("it is %v before the change, too", before)
			}
			f.change(&p)
			if after := f.look(p.Catalog()); after != f.want {
				t.Errorf("got %v, want %v", after, f.want)
			}
		})
	}
}
