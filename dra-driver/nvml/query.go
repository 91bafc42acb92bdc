package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// calls is a series of questions to NVML: after the first failure no further one is asked.
type calls struct {
	err error
}

// query returns the answer to a question; zero after a failure.
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

// queryOptional is ask for what not every GPU and driver has; that it has none is no failure.
func queryOptional[T any](a *calls, call string, question func() (T, nvml.Return)) (T, bool) {
	return queryExcept(a, call, question, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND)
}

// queryIndexed is askIfAny for one of a numbered list, which a driver may know less of than this code.
func queryIndexed[T any](a *calls, call string, question func() (T, nvml.Return)) (T, bool) {
	return queryExcept(a, call, question, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT)
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
