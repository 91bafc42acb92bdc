package gpu

// ComputeMode says who may create CUDA contexts on a GPU (nvmlComputeMode_t), as far as Tessera sets it.
type ComputeMode int

// The compute modes.
const (
	// ComputeDefault lets any number of processes use the GPU.
	ComputeDefault ComputeMode = iota
	// ComputeExclusive lets one process at a time (EXCLUSIVE_PROCESS): with an MPS daemon that process
	// is the daemon's server, and nobody can go around it.
	ComputeExclusive
)

// String returns the mode as nvidia-smi prints it.
func (m ComputeMode) String() string {
	switch m {
	case ComputeDefault:
		return "Default"
	case ComputeExclusive:
		return "Exclusive_Process"
	}
	return "unknown"
}
