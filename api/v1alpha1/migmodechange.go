package v1alpha1

import "slices"

// MIGModeChange is a change of the MIG mode of one GPU that the driver refuses.
type MIGModeChange struct {
	// GPU is the name of the GPU.
	GPU string `json:"gpu"`
	// State is PausingMonitoring (the installer removes pods that monitor GPUs from the node while it is set; the agent retries the change) or Refused
	// (the change was given up for a while, see message; monitoring may return).
	// +kubebuilder:validation:Enum=PausingMonitoring;Refused
	State MIGModeChangeState `json:"state"`
	// Message describes what prevents the change and what to do.
	// +optional
	Message string `json:"message,omitempty"`
}

// MIGModeChangeState is the state of a refused change of the MIG mode.
type MIGModeChangeState string

// The states of a refused change of the MIG mode.
const (
	MIGModePausingMonitoring MIGModeChangeState = "PausingMonitoring"
	MIGModeRefused           MIGModeChangeState = "Refused"
)

// PausesMonitoring reports whether the agent requests that pods that monitor GPUs leave the node.
func (a *AgentStatus) PausesMonitoring() bool {
	return slices.ContainsFunc(a.MIGModeChanges, func(c MIGModeChange) bool { return c.State == MIGModePausingMonitoring })
}
