package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// failure returns nil for a success, and otherwise an error that names the call and says in NVML's
// words what is wrong; it wraps the sentinel that a caller decides on, when there is one.
func failure(call string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	// The text is taken now: it comes from the library, which may be gone when the error is printed.
	text := ret.Error()
	if kind := sentinel(ret); kind != nil {
		return fmt.Errorf("%s: %s (%d): %w", call, text, int(ret), kind)
	}
	return fmt.Errorf("%s: %s (%d)", call, text, int(ret))
}

func sentinel(ret nvml.Return) error {
	switch {
	case ret == nvml.ERROR_IN_USE:
		return gpu.ErrBusy
	case ret == nvml.ERROR_INSUFFICIENT_RESOURCES:
		return gpu.ErrOccupied
	case ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND:
		return gpu.ErrUnsupported
	case ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED:
		return gpu.ErrLost
	case ret == nvml.ERROR_UNINITIALIZED || ret == nvml.ERROR_DRIVER_NOT_LOADED || ret == nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return gpu.ErrNoDriver
	}
	return nil
}
