package gpu

// NoInstance is Process.GI of a process that uses a GPU outside of MIG devices, or whose MIG device the driver does not report.
const NoInstance = -1

// Process is a process that has a context on a GPU.
type Process struct {
	// PID is the process ID in the PID namespace of the caller.
	PID int
	// GI is NVML's id of the GPU instance that the process uses, or NoInstance.
	GI int
}
