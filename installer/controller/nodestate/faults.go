package nodestate

import (
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Faults returns the severe faults of the node's GPUs.
func (o *Observation) Faults() []v1alpha1.GPUFault {
	return SevereFaults(o.Status.Agent, o.Node.BootID)
}

// SevereFaults returns the faults that are Critical or Fatal, as the agent reported them in the present boot; none when it has not reported yet.
func SevereFaults(agent *v1alpha1.AgentStatus, bootID string) []v1alpha1.GPUFault {
	if agent == nil || agent.BootID != bootID {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(agent.Faults), func(f v1alpha1.GPUFault) bool {
		return f.Severity != gpu.Critical.String() && f.Severity != gpu.Fatal.String()
	})
}

// FaultTitle returns a fault for messages: the number of an XID, or else the signal.
func FaultTitle(f v1alpha1.GPUFault) string {
	if f.XID != 0 {
		return fmt.Sprintf("XID %d", f.XID)
	}
	return f.Signal
}
