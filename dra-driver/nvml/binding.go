package nvml

// #include <stdlib.h>
// #include "binding.h"
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// connect loads the library at path and initializes NVML. A node without GPUs is not an error. If the library cannot be
// loaded, the error wraps gpu.ErrNoDriver.
//
// go-nvml resolves its C symbols with the dynamic linker, which has three defects in a long-running agent: a function
// that the driver lacks ends the process at its first call; with -z now, the default of some distributions, it ends the
// process at startup; and the first library that was loaded stays bound, so that calls after a driver update run the old
// library's code. The functions are therefore defined in this package (forward.S) and jump through a table that
// tessera_nvml_bind fills. A function that the driver lacks returns NVML_ERROR_FUNCTION_NOT_FOUND.
func connect(path string) (nvml.Interface, error) {
	file := C.CString(path)
	defer C.free(unsafe.Pointer(file))
	if reason := C.tessera_nvml_bind(file); reason != nil {
		defer C.free(unsafe.Pointer(reason))
		return nil, fmt.Errorf("load %s: %s: %w", path, explainLoad(C.GoString(reason)), gpu.ErrNoDriver)
	}
	library := nvml.New(nvml.WithLibraryPath(path))
	if ret := library.InitWithFlags(nvml.INIT_FLAG_NO_GPUS); ret != nvml.SUCCESS {
		err := newCallError("nvmlInitWithFlags", ret)
		disconnect(library)
		return nil, err
	}
	return library, nil
}

// explainLoad returns the text of the dynamic linker with what to do, where the driver's library was built for another C library than the agent's.
func explainLoad(reason string) string {
	switch {
	case strings.Contains(reason, "musl"):
		return reason + ": the driver's libraries are for musl; use a driver image of a distribution with glibc"
	case strings.Contains(reason, "GLIBC_"):
		return reason + ": the driver's libraries need a newer glibc than the agent's image has; use the driver image of an older distribution or a newer agent"
	}
	return reason
}

// disconnect shuts NVML down and closes the library. go-nvml keeps its own handle of the library when nvmlShutdown
// fails; disconnect closes that handle too.
func disconnect(library nvml.Interface) {
	handles := C.int(1)
	if library.Shutdown() != nvml.SUCCESS {
		handles++
	}
	C.tessera_nvml_unbind(handles)
}
