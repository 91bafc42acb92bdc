package gpu

import "errors"

// The errors on which callers branch, with errors.Is. Hardware implementations wrap all of them; this package returns
// ErrOccupied, ErrUnsupported and ErrTooLarge only.
var (
	// ErrBusy reports that the hardware refused a change because a process still uses the object. A retry can succeed
	// (NVML_ERROR_IN_USE).
	ErrBusy = errors.New("in use")
	// ErrOccupied reports that a use does not fit next to what the GPU holds (NVML_ERROR_INSUFFICIENT_RESOURCES).
	ErrOccupied = errors.New("occupied")
	// ErrUnsupported reports that this GPU can never do what was requested (NVML_ERROR_NOT_SUPPORTED).
	ErrUnsupported = errors.New("unsupported")
	// ErrTooLarge reports that profiles or engines exceed the bounds of a Geometry. No known GPU comes near them.
	ErrTooLarge = errors.New("too large")
	// ErrLost reports that the GPU no longer responds (NVML_ERROR_GPU_IS_LOST).
	ErrLost = errors.New("lost")
	// ErrNoDriver reports that no driver is loaded, or that the driver was replaced after the library was opened. Opening the
	// library again can succeed (NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH).
	ErrNoDriver = errors.New("no driver")
)
