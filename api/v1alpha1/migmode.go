package v1alpha1

// resetArchitecture is the architecture of GPUs whose MIG mode changes only with a reset, which requires that no process uses the GPU. On newer GPUs the
// agent changes the mode as claims require.
const resetArchitecture = "Ampere"

// Differs reports whether the GPUs of the agent's node are in another MIG mode than m and need a reset to change it.
func (m MIGMode) Differs(agent *AgentStatus) bool {
	return m != "" && agent != nil && agent.MIGCapable && agent.Architecture == resetArchitecture && agent.MIGMode != string(m)
}
