// Package cuda computes on one GPU or MIG device through the CUDA driver API, as a program of a user does. The driver's library is loaded at run time.
package cuda

// #include <stdlib.h>
// #include "compute.h"
import "C"

import (
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"unsafe"
)

// Library is the name by which the dynamic linker finds the CUDA driver API in a container.
const Library = "libcuda.so.1"

//go:embed kernel.ptx
var kernel string

// Failure is why a device does not compute. It is an error, and JSON between processes.
type Failure struct {
	// Step is the call of the CUDA driver API that failed, or the comparison.
	Step string `json:"step"`
	// Code is the CUresult of the call (cuda.h) and Name its name; 0 and empty where no call returned an error.
	Code int    `json:"code,omitempty"`
	Name string `json:"name,omitempty"`
	// Detail is what else is known.
	Detail string `json:"detail,omitempty"`
}

// Error returns the step and the error.
func (f *Failure) Error() string {
	text := f.Step
	if f.Code != 0 {
		name := f.Name
		if name == "" {
			name = "unnamed CUDA error"
		}
		text += fmt.Sprintf(": %s (%d)", name, f.Code)
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// Compute proves that the device with this UUID, such as GPU-… or MIG-…, computes: 1 MiB is copied to it and back, a kernel on all of its
// multiprocessors transforms it, and every byte is compared. CUDA_VISIBLE_DEVICES of this process must name the device and no other: CUDA reads it when it
// starts, and uses one MIG device in a process. Compute blocks until the driver answers, and is called once in a process. The result is nil or the failure.
func Compute(library, uuid string) *Failure {
	id, err := parseUUID(uuid)
	if err != nil {
		return &Failure{Step: "parse the UUID", Detail: err.Error()}
	}
	path, text, bytes := C.CString(library), C.CString(kernel), C.CBytes(id)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(text))
	defer C.free(bytes)
	var failure C.struct_tessera_cuda_failure
	if C.tessera_cuda_compute(path, text, (*C.uchar)(bytes), &failure) == 0 {
		return nil
	}
	return &Failure{
		Step: C.GoString(failure.step), Code: int(failure.code), Name: C.GoString(&failure.name[0]), Detail: C.GoString(&failure.detail[0]),
	}
}

// parseUUID returns the 16 bytes of the UUID of a GPU or MIG device.
func parseUUID(text string) ([]byte, error) {
	_, digits, _ := strings.Cut(text, "-")
	id, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if err != nil || len(id) != 16 {
		return nil, fmt.Errorf("%q is not the UUID of a GPU or MIG device", text)
	}
	return id, nil
}
