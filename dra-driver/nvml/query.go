package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// answers is a series of questions to NVML: after the first failure no further one is asked.
type answers struct {
	err error
}

// ask returns the answer to a question; zero after a failure.
func ask[T any](a *answers, call string, question func() (T, nvml.Return)) T {
	var none T
	if a.err != nil {
		return none
	}
	answer, code := question()
	if a.err = failure(call, code); a.err != nil {
		return none
	}
	return answer
}

// askIfAny is ask for what not every GPU and driver has; that it has none is no failure.
func askIfAny[T any](a *answers, call string, question func() (T, nvml.Return)) (T, bool) {
	return askUnless(a, call, question, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND)
}

// askAt is askIfAny for one of a numbered list, which a driver may know less of than this code.
func askAt[T any](a *answers, call string, question func() (T, nvml.Return)) (T, bool) {
	return askUnless(a, call, question, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT)
}

func askUnless[T any](a *answers, call string, question func() (T, nvml.Return), excused ...nvml.Return) (answer T, has bool) {
	if a.err != nil {
		return answer, false
	}
	answer = ask(a, call, question)
	if answered(a.err, excused...) {
		a.err = nil
		return answer, false
	}
	return answer, a.err == nil
}
