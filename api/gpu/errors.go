package gpu

import "errors"

// The sentinels a caller decides on. Hardware ports wrap them; the model returns ErrOccupied and
// ErrUnsupported.
var (
	// ErrBusy says that the hardware refused because a client still uses the object; a later try
	// may succeed (NVML_ERROR_IN_USE).
	ErrBusy = errors.New("in use")
	// ErrOccupied says that what was asked overlaps what the GPU already holds
	// (NVML_ERROR_INSUFFICIENT_RESOURCES).
	ErrOccupied = errors.New("occupied")
	// ErrUnsupported says that this GPU can never do what was asked (NVML_ERROR_NOT_SUPPORTED).
	ErrUnsupported = errors.New("unsupported")
	// ErrLost says that the GPU does not answer any more (NVML_ERROR_GPU_IS_LOST).
	ErrLost = errors.New("lost")
	// ErrNoDriver says that the node has no loaded driver, or that it was replaced since it was opened;
	// opening it again may help (NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH).
	ErrNoDriver = errors.New("no driver")
)
