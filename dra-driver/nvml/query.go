package nvml

import (
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// calls is a series of NVML calls: after the first failure, the remaining calls are skipped. err is the first failure.
type calls struct {
	err error
	// omitted are the failures of queryExtra.
	omitted []error
}

// query makes the NVML call and returns its result; the zero value if this call or an earlier one failed.
func query[T any](a *calls, call string, question func() (T, nvml.Return)) T {
	var none T
	if a.err != nil {
		return none
	}
	answer, code := question()
	if a.err = newCallError(call, code); a.err != nil {
		return none
	}
	return answer
}

// queryOptional is query for what some GPUs and drivers lack: it returns false then, and a.err stays nil.
func queryOptional[T any](a *calls, call string, question func() (T, nvml.Return)) (T, bool) {
	return queryExcept(a, call, question, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND)
}

// queryIndexed is queryOptional for an entry of a numbered list, of which a driver may support fewer entries than the
// header defines.
func queryIndexed[T any](a *calls, call string, question func() (T, nvml.Return)) (T, bool) {
	return queryExcept(a, call, question, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT)
}

// queryExtra is queryOptional for what a GPU is usable without: any failure is omitted, except that of a GPU or driver
// that does not respond.
func queryExtra[T any](a *calls, call string, question func() (T, nvml.Return), excused ...nvml.Return) (answer T, has bool) {
	if a.err != nil {
		return answer, false
	}
	answer, has = queryExcept(a, call, question, append(excused, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND)...)
	if has || a.err == nil || errors.Is(a.err, gpu.ErrLost) || errors.Is(a.err, gpu.ErrNoDriver) {
		return answer, has
	}
	a.omitted, a.err = append(a.omitted, a.err), nil
	return answer, false
}

func queryExcept[T any](a *calls, call string, question func() (T, nvml.Return), excused ...nvml.Return) (answer T, has bool) {
	if a.err != nil {
		return answer, false
	}
	answer = query(a, call, question)
	if failedWith(a.err, excused...) {
		a.err = nil
		return answer, false
	}
	return answer, a.err == nil
}
