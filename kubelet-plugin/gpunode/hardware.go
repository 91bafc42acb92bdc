package gpunode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The modes of status.agent.migMode.
const (
	enabled  = "Enabled"
	disabled = "Disabled"
	mixed    = "Mixed"
)

// HardwareStatus returns the part of an agent's status that describes the hardware. GPUs that do not respond are not counted; if none
// responds, the status is empty, also of the driver's version: the driver is unloaded or does not work.
func HardwareStatus(node gpu.Node) v1alpha1.AgentStatus {
	responding := slices.DeleteFunc(slices.Clone(node.GPUs), func(g gpu.GPU) bool { return g.Lost })
	if len(responding) == 0 && len(node.GPUs) > 0 {
		return v1alpha1.AgentStatus{}
	}
	s := v1alpha1.AgentStatus{DriverVersion: node.DriverVersion, CUDAVersion: node.CUDAVersion, GPUs: int32(len(responding))} //nolint:gosec // at most a few dozen
	if len(responding) == 0 {
		return s
	}
	first := responding[0]
	s.Product, s.Memory, s.Architecture = products(responding), int64(first.MemoryBytes), first.Architecture //nolint:gosec // far below the limit
	s.Clique = first.Clique
	if first.ComputeMajor > 0 {
		s.ComputeCapability = fmt.Sprintf("%d.%d", first.ComputeMajor, first.ComputeMinor)
	}
	for _, g := range responding {
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

// products returns the names of the GPUs' products, separated by commas, that of the first GPU first.
func products(gpus []gpu.GPU) string {
	var names []string
	for _, g := range gpus {
		if !slices.Contains(names, g.Product) {
			names = append(names, g.Product)
		}
	}
	return strings.Join(names, ", ")
}
