package cluster

import (
	"context"

	"github.com/tessera-gpu/tessera/e2e/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/lab"
)

// Hardware fits the lab's nodes with fake GPUs. A spec is the name of a machine in the catalogue, such
// as h100x8.
type Hardware struct{}

var _ lab.Hardware = Hardware{}

// Install lays the machine into the folder.
func (Hardware) Install(ctx context.Context, node, spec, folder string) error {
	return fakegpu.Install(ctx, folder, fakegpu.Spec{Node: node, Machine: spec})
}

// Reboot does to the GPUs what a power cycle does.
func (Hardware) Reboot(_ context.Context, folder string) error { return fakegpu.Reboot(folder) }

// Nodes returns the default lab: eight H100 behind NVSwitch, and a mixed node of A30, two of them with
// MIG mode on, and L40S.
func Nodes() []lab.NodeSpec {
	return []lab.NodeSpec{
		{Name: "node1", GPU: "h100x8"},
		{Name: "node2", GPU: "a30x4l40sx4"},
	}
}
