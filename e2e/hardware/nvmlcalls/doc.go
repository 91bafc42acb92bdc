// Package nvmlcalls makes every query of the agent to NVML, and further ones about the same subjects, and records the answers: return codes, values and
// durations. A recording of hardware is the reference for the fake library. No call changes anything.
package nvmlcalls
