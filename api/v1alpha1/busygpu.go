package v1alpha1

import "slices"

// BusyGPU is a GPU on which the driver refuses what claims need because a program has it open: a change of the MIG mode, or the destruction of a MIG device
// that no process uses.
type BusyGPU struct {
	// GPU is the name of the GPU.
	GPU string `json:"gpu"`
	// State is PausingMonitoring (the installer removes pods that monitor GPUs from the node while it is set; the agent tries again) or Refused (the agent
	// does not try for a while, see message; monitoring may return).
	// +kubebuilder:validation:Enum=PausingMonitoring;Refused
	State BusyState `json:"state"`
	// Message describes what is refused and what to do.
	// +optional
	Message string `json:"message,omitempty"`
}

// BusyState is what happens about a busy GPU.
type BusyState string

// The states of a busy GPU.
const (
	BusyPausingMonitoring BusyState = "PausingMonitoring"
	BusyRefused           BusyState = "Refused"
)

// PausesMonitoring reports whether the agent requests that pods that monitor GPUs leave the node.
func (a *AgentStatus) PausesMonitoring() bool {
	return slices.ContainsFunc(a.BusyGPUs, func(b BusyGPU) bool { return b.State == BusyPausingMonitoring })
}
