package main

import (
	"context"
	"path/filepath"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
	"github.com/tessera-gpu/tessera/kubelet-plugin/gpunode"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// keep joins the agent with the GPUNode of its node and returns the gate that claims pass, nil where no
// installer is. The agent's other parts are asked only while it runs.
func (a *agent) keep(c config, client gpunode.Client, boot string, records *checkpoint.Store) (prepare.Gate, error) {
	if !c.gpuNode {
		return nil, nil
	}
	gate, err := gpunode.OpenGate(filepath.Join(c.data(), gateFolder), c.namespace, a.instance.Leads)
	if err != nil {
		return nil, err
	}
	// What is held stays held from the first slice on that is published. A word that cannot be read is written anew.
	if word, err := gate.Word(); err == nil {
		a.inventory.Hold(word.Held())
	}
	facts := func(ctx context.Context) v1alpha1.AgentStatus {
		s := gpunode.Describe(a.inventory.Node())
		s.Faults = gpunode.Faults(a.monitor.Faults(), c.rules())
		s.Version, s.PodUID, s.BootID = buildInfo().version, c.podUID, boot
		s.Accepted = a.ready(ctx) == nil
		return s
	}
	a.keeper = gpunode.New(gpunode.Config{
		Node: c.node, Client: client, Gate: gate, Facts: facts, Known: a.known, Closed: a.disturb,
		Prepared: func() (int, error) { return records.Count(boot) },
		Remedies: a.remedies(c, boot, records),
	})
	return gate, nil
}

// known reports whether the inventory has read the hardware, or found it to be without a driver.
func (a *agent) known() bool {
	_, known, _ := a.inventory.Watch()
	return known
}
