package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// callError is a failed NVML call. It wraps the sentinel of api/gpu on which callers decide, if there is one.
type callError struct {
	call string
	code nvml.Return
	// text is copied when the call fails: the string of go-nvml points into the library, which may be unloaded later.
	text string
}

func newCallError(call string, code nvml.Return) error {
	if code == nvml.SUCCESS {
		return nil
	}
	return &callError{call: call, code: code, text: strings.Clone(code.Error())}
}

// Error returns the name of the call, NVML's text and the code.
func (e *callError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.call, e.text, int(e.code)) }

// Unwrap returns the sentinel.
func (e *callError) Unwrap() error { return sentinel(e.code) }

func sentinel(code nvml.Return) error {
	switch int(code) {
	case int(nvml.ERROR_IN_USE):
		return gpu.ErrBusy
	case int(nvml.ERROR_INSUFFICIENT_RESOURCES):
		return gpu.ErrOccupied
	case int(nvml.ERROR_NOT_SUPPORTED), int(nvml.ERROR_FUNCTION_NOT_FOUND):
		return gpu.ErrUnsupported
	case int(nvml.ERROR_GPU_IS_LOST), int(nvml.ERROR_RESET_REQUIRED):
		return gpu.ErrLost
	case int(nvml.ERROR_UNINITIALIZED), int(nvml.ERROR_DRIVER_NOT_LOADED), int(nvml.ERROR_LIB_RM_VERSION_MISMATCH):
		return gpu.ErrNoDriver
	}
	return nil
}

// failedWith reports whether err is a failed call with one of the codes.
func failedWith(err error, codes ...nvml.Return) bool {
	var refused *callError
	return errors.As(err, &refused) && slices.Contains(codes, refused.code)
}
