package v1alpha1

// resetArchitecture is the generation of GPUs whose MIG mode changes only by a reset, with nobody on them. On newer ones the agent changes it as claims
// need it, and nobody else does.
const resetArchitecture = "Ampere"

// Differs reports whether the GPUs that an agent speaks of are to be brought to this MIG mode by a reset, and are not in it.
func (m MIGMode) Differs(agent *AgentStatus) bool {
	return m != "" && agent != nil && agent.MIGCapable && agent.Architecture == resetArchitecture && agent.MIGMode != string(m)
}
