package nvml

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

func TestFailure(t *testing.T) {
	sentinels := []error{gpu.ErrBusy, gpu.ErrOccupied, gpu.ErrUnsupported, gpu.ErrLost, gpu.ErrNoDriver}
	tests := map[nvml.Return]error{
		nvml.ERROR_IN_USE:                  gpu.ErrBusy,
		nvml.ERROR_INSUFFICIENT_RESOURCES:  gpu.ErrOccupied,
		nvml.ERROR_NOT_SUPPORTED:           gpu.ErrUnsupported,
		nvml.ERROR_FUNCTION_NOT_FOUND:      gpu.ErrUnsupported,
		nvml.ERROR_GPU_IS_LOST:             gpu.ErrLost,
		nvml.ERROR_RESET_REQUIRED:          gpu.ErrLost,
		nvml.ERROR_UNINITIALIZED:           gpu.ErrNoDriver,
		nvml.ERROR_DRIVER_NOT_LOADED:       gpu.ErrNoDriver,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: gpu.ErrNoDriver,
		nvml.ERROR_INVALID_ARGUMENT:        nil,
		nvml.ERROR_NOT_FOUND:               nil,
		nvml.ERROR_UNKNOWN:                 nil,
	}
	for code, want := range tests {
		err := fmt.Errorf("create something: %w", newCallError("nvmlSomething", code))
		for _, sentinel := range sentinels {
			if got := errors.Is(err, sentinel); got != errors.Is(want, sentinel) {
				t.Errorf("%v: is %q: %t", err, sentinel, got)
			}
		}
		if !failedWith(err, code) || failedWith(err, nvml.SUCCESS) {
			t.Errorf("%v: does not contain its code", err)
		}
	}
	if err := newCallError("nvmlSomething", nvml.SUCCESS); err != nil {
		t.Errorf("success: got %v", err)
	}
	if got := newCallError("nvmlDeviceGetCount", nvml.ERROR_GPU_IS_LOST).Error(); !strings.HasPrefix(got, "nvmlDeviceGetCount: ") || !strings.HasSuffix(got, " (15)") {
		t.Errorf("message: got %q, want the call, NVML's words and its code", got)
	}
}

// What a GPU does not support is not a failure, and does not hide an earlier failure.
func TestCallsStopAfterFailure(t *testing.T) {
	question := func(code nvml.Return) func() (int, nvml.Return) {
		return func() (int, nvml.Return) { return 7, code }
	}
	var a calls
	if got, has := queryOptional(&a, "nvmlOptional", question(nvml.ERROR_NOT_SUPPORTED)); has || got != 0 || a.err != nil {
		t.Errorf("not supported: got %d, %t, %v", got, has, a.err)
	}
	if got, has := queryIndexed(&a, "nvmlNumbered", question(nvml.ERROR_INVALID_ARGUMENT)); has || got != 0 || a.err != nil {
		t.Errorf("no such number: got %d, %t, %v", got, has, a.err)
	}
	if got, has := queryOptional(&a, "nvmlOptional", question(nvml.SUCCESS)); !has || got != 7 {
		t.Errorf("supported: got %d, %t", got, has)
	}
	wrong := calls{}
	if _, has := queryOptional(&wrong, "nvmlOptional", question(nvml.ERROR_INVALID_ARGUMENT)); has || wrong.err == nil {
		t.Error("an invalid argument was taken for a missing feature")
	}
	if got := query(&a, "nvmlNeeded", question(nvml.ERROR_NOT_SUPPORTED)); got != 0 || !errors.Is(a.err, gpu.ErrUnsupported) {
		t.Errorf("needed: got %d, %v", got, a.err)
	}
	if _, has := queryOptional(&a, "nvmlOptional", question(nvml.SUCCESS)); has || !failedWith(a.err, nvml.ERROR_NOT_SUPPORTED) {
		t.Errorf("after a failure: got %t, %v", has, a.err)
	}
}
