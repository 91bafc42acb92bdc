package validate

import (
	"fmt"

	"github.com/tessera-gpu/tessera/dra-driver/cuda"
)

// Errors of the CUDA driver API, by their names in cuda.h without CUDA_ERROR.
const (
	outOfMemory           = 2
	deviceUnavailable     = 46
	noDevice              = 100
	noBinaryForGPU        = 209
	eccUncorrectable      = 214
	invalidPTX            = 218
	nvlinkUncorrectable   = 220
	unsupportedPTXVersion = 222
	illegalAddress        = 700
	launchTimeout         = 702
	misalignedAddress     = 716
	launchFailed          = 719
	systemNotReady        = 802
	driverMismatch        = 803
	unknown               = 999
)

// contextBytes is the free memory with which a context and the validation's buffers fit on every GPU, with room to spare.
const contextBytes = 1 << 30

// judge decides what became of a device from the result of its computation: the failure of the device, or the error of the process.
func judge(t target, failure *cuda.Failure, err error) verdict {
	switch {
	case err != nil:
		return verdict{true, fmt.Sprintf("%v: check the kernel log for XIDs, and reset the GPU", err)}
	case failure == nil:
		return verdict{false, computed}
	case failure.Code == deviceUnavailable && t.exclusive:
		return verdict{false, "in exclusive use by another process: the driver responds, nothing was computed"}
	case failure.Code == outOfMemory && t.free < contextBytes:
		return verdict{false, fmt.Sprintf("its memory is in use, %d MiB are free: the driver responds, nothing was computed", t.free>>20)}
	}
	return verdict{true, fmt.Sprintf("%v: %s", failure, remedy(failure))}
}

// remedy returns what to do about a failure.
func remedy(failure *cuda.Failure) string {
	switch failure.Code {
	case 0:
		switch failure.Step {
		case "dlopen", "dlsym":
			return "the driver's CUDA library is absent or too old; check the installed driver, 535 or newer is required"
		}
		return "the device returns wrong data; take the GPU out of service and replace it"
	case outOfMemory:
		return "memory is free and cannot be allocated; reset the GPU"
	case deviceUnavailable:
		return "compute mode Prohibited; set it with nvidia-smi -c DEFAULT"
	case noDevice:
		return "NVML lists the device and CUDA does not; check the device nodes and /dev/nvidia-uvm in the container"
	case noBinaryForGPU, invalidPTX, unsupportedPTXVersion:
		return "the driver cannot compile the kernel; check that libnvidia-ptxjitcompiler is installed with the driver"
	case eccUncorrectable, nvlinkUncorrectable, illegalAddress, launchTimeout, misalignedAddress, launchFailed:
		return "the GPU has a fault; check the kernel log for XIDs, and reset the GPU"
	case systemNotReady:
		return "the NVLink fabric is not ready; check the Fabric Manager on the node"
	case driverMismatch:
		return "the library and the loaded modules are of different driver versions; reload the modules or reboot the node"
	case unknown:
		return "check that the module nvidia_uvm is loaded, and the kernel log for XIDs"
	}
	return "check the kernel log for XIDs, and reset the GPU"
}
