package gpu

// ComputeMode determines which processes may create CUDA contexts on a GPU. It has the values of nvmlComputeMode_t that Tessera
// sets.
type ComputeMode int

// The compute modes.
const (
	// ComputeDefault permits contexts of any number of processes (NVML_COMPUTEMODE_DEFAULT).
	ComputeDefault ComputeMode = iota
	// ComputeExclusive permits contexts of one process at a time (NVML_COMPUTEMODE_EXCLUSIVE_PROCESS). With an MPS daemon that
	// process is the daemon's server, so that no client can bypass the daemon.
	ComputeExclusive
)

// String returns the mode as nvidia-smi prints it, or "unknown".
func (m ComputeMode) String() string {
	switch m {
	case ComputeDefault:
		return "Default"
	case ComputeExclusive:
		return "Exclusive_Process"
	}
	return "unknown"
}
