package gpunode

import (
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The modes of status.agent.migMode.
const (
	enabled  = "Enabled"
	disabled = "Disabled"
	mixed    = "Mixed"
)

// Describe returns what the hardware adds to an agent's status. A GPU that does not answer is not counted; where none does,
// nothing is said of the driver either: it is gone, or of no use.
func Describe(node gpu.Node) v1alpha1.AgentStatus {
	answering := slices.DeleteFunc(slices.Clone(node.GPUs), func(g gpu.GPU) bool { return g.Lost })
	if len(answering) == 0 && len(node.GPUs) > 0 {
		return v1alpha1.AgentStatus{}
	}
	s := v1alpha1.AgentStatus{DriverVersion: node.DriverVersion, CUDAVersion: node.CUDAVersion, GPUs: int32(len(answering))} //nolint:gosec // at most a few dozen
	if len(answering) == 0 {
		return s
	}
	first := answering[0]
	s.Product, s.Memory, s.Architecture = first.Product, int64(first.MemoryBytes), first.Architecture //nolint:gosec // far below the limit
	s.Clique = first.Clique
	if first.ComputeMajor > 0 {
		s.ComputeCapability = fmt.Sprintf("%d.%d", first.ComputeMajor, first.ComputeMinor)
	}
	for _, g := range answering {
		if g.Mode == gpu.ModeUnsupported {
			continue
		}
		mode := disabled
		if g.Mode == gpu.ModeEnabled {
			mode = enabled
		}
		if s.MIGCapable && s.MIGMode != mode {
			mode = mixed
		}
		s.MIGCapable, s.MIGMode = true, mode
		s.MIGPending = s.MIGPending || g.Pending != g.Mode
	}
	return s
}
