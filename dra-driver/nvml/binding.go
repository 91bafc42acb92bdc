package nvml

// #include <stdlib.h>
// #include "binding.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// connect opens the library and initializes NVML. A node without GPUs is no error.
//
// go-nvml leaves its C symbols to the dynamic linker, and that has three faults in an agent that runs
// for months: a function that the driver lacks ends the process at its first call; with -z now, the
// default of some distributions, it ends it at the start; and the first library that was called stays
// bound for good, so that a new driver would be spoken to through the old one's code. The functions
// are therefore defined in this package (forward.S) and jump through a table that is filled here.
// What the driver lacks answers NVML_ERROR_FUNCTION_NOT_FOUND.
func connect(path string) (nvml.Interface, error) {
	file := C.CString(path)
	defer C.free(unsafe.Pointer(file))
	if reason := C.tessera_nvml_bind(file); reason != nil {
		defer C.free(unsafe.Pointer(reason))
		return nil, fmt.Errorf("load %s: %s: %w", path, C.GoString(reason), gpu.ErrNoDriver)
	}
	library := nvml.New(nvml.WithLibraryPath(path))
	if ret := library.InitWithFlags(nvml.INIT_FLAG_NO_GPUS); ret != nvml.SUCCESS {
		err := newCallError("nvmlInitWithFlags", ret)
		disconnect(library)
		return nil, err
	}
	return library, nil
}

// disconnect ends NVML and lets the library go. go-nvml keeps its own handle of the library when
// nvmlShutdown fails; it is given back here.
func disconnect(library nvml.Interface) {
	handles := C.int(1)
	if library.Shutdown() != nvml.SUCCESS {
		handles++
	}
	C.tessera_nvml_unbind(handles)
}
