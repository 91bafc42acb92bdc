package main

import (
	"context"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
)

// facts is the hardware of a machine, as a fixture for tests.
type facts struct {
	// Tessera is the version of the program that read it.
	Tessera string `json:"tessera"`
	// Node is the model of the machine, including the geometry of every GPU.
	Node gpu.Node `json:"node"`
}

// gather reads the hardware like the agent, without changing the GPUs.
func gather(ctx context.Context, c config) (facts, error) {
	session := nvml.New(nvml.Config{Library: c.roots().Library, Nodes: c.nodes().Ensure, SysRoot: c.Roots.Sys})
	defer session.Close() //nolint:contextcheck // it also closes after ctx has ended
	if err := session.Reopen(ctx); err != nil {
		return facts{}, err
	}
	node, err := session.Read(ctx)
	if err != nil {
		return facts{}, err
	}
	node.Name = c.node
	return facts{Tessera: versionText(), Node: node}, nil
}
