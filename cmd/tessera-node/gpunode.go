package main

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/host/unload"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
	"github.com/tessera-gpu/tessera/kubelet-plugin/gpunode"
	"github.com/tessera-gpu/tessera/kubelet-plugin/maintenance"
	"github.com/tessera-gpu/tessera/kubelet-plugin/monitoring"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// newGPUNodeController sets the controller of the node's GPUNode and returns the gate for claims, nil without an installer. The agent's
// other parts are used only while the controller runs.
func (a *agent) newGPUNodeController(c config, client gpunode.Client, boot string, records *checkpoint.Store) (prepare.Gate, error) {
	if !c.gpuNode {
		return nil, nil
	}
	gate, err := maintenance.OpenGate(disk.Host{}, filepath.Join(c.data(), gateFolder), c.namespace, a.instance.Leads)
	if err != nil {
		return nil, err
	}
	// The first ResourceSlices that are published contain the holds. A closure that cannot be read is replaced later.
	if closure, err := gate.Closure(); err == nil {
		a.inventory.Hold(closure.Held())
		a.inventory.Maintain(closure.Taint)
	}
	status := func(ctx context.Context) v1alpha1.AgentStatus {
		s := gpunode.HardwareStatus(a.inventory.Node())
		s.BusyGPUs = a.monitoring.Status()
		s.Faults = gpunode.Faults(a.monitor.Faults(), c.rules())
		s.Version, s.PodUID, s.BootID = buildInfo().version, c.podUID, boot
		// Without the common CDI spec no claim can be prepared.
		problem := a.specs.Problem()
		s.Ready, s.Message = a.ready(ctx) == nil && problem == "", cmp.Or(a.inventory.Problem(), problem)
		return s
	}
	enforcer := maintenance.NewEnforcer(maintenance.Config{
		Gate: gate, Closed: a.requestReconcile, Hold: a.inventory.Hold, Taint: a.inventory.Maintain, Group: a.resetGroup, Resetter: a.resetter(c), WasReset: a.wasReset,
		Prepared:   func() (int, error) { return records.Count(boot) },
		PreparedOn: func(gpus []string) (int, error) { return records.CountOn(boot, gpus) },
		Exclusive: func(ctx context.Context, gpus []string, purpose string, do func(context.Context) error) error {
			return a.preparer.Exclusive(ctx, gpus, purpose, do)
		},
	})
	a.gpuNode = gpunode.New(gpunode.Config{Node: c.node, Client: client, Maintenance: enforcer, Status: status, Known: a.known, Rounds: a.liveness})
	return gate, nil
}

// monitoring returns the requests that pods that monitor GPUs leave the node. The installer, where there is one, acts on them.
func (c config) monitoring() *monitoring.Requests {
	return monitoring.New(monitoring.Config{Removable: c.gpuNode, Holders: func() []string {
		holders, err := unload.Holders(filepath.Join(c.Roots.Host, "proc"))
		if err != nil {
			return nil
		}
		var names []string
		for _, h := range holders {
			names = append(names, h.String())
		}
		return names
	}})
}

// known reports whether the inventory has read the hardware or found no driver.
func (a *agent) known() bool {
	_, known, _ := a.inventory.Watch()
	return known
}
