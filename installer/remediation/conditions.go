package remediation

import (
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// Reasons of conditions.
const (
	ReasonNoFaults     = "NoFaults"
	ReasonFaults       = "Faults"
	ReasonRequested    = "Requested"
	ReasonNotRequested = "NotRequested"
)

// Conditions returns the conditions GPUsHealthy and RebootRequired of a GPUNode, from the agent's faults and the remediations. Without a current
// agent status the health is unknown and only RebootRequired is returned, so that GPUsHealthy keeps its value.
func Conditions(reports bool, faults []v1alpha1.GPUFault, remedies []v1alpha1.RemediationStatus) []phase.Condition {
	reboot := phase.Condition{Type: v1alpha1.ConditionRebootRequired, Reason: ReasonNotRequested}
	var requested []string
	for _, s := range remedies {
		if s.Step == v1alpha1.RemediationStepRebootRequested && s.Reason != ReasonRebooted {
			requested = append(requested, s.GPU+": "+s.Message)
		}
	}
	if len(requested) > 0 {
		reboot.Met, reboot.Reason, reboot.Message = true, ReasonRequested, some(requested)
	}
	if !reports {
		return []phase.Condition{reboot}
	}
	healthy := phase.Condition{Type: v1alpha1.ConditionGPUsHealthy, Met: true, Reason: ReasonNoFaults}
	var unhealthy []string
	for _, f := range faults {
		if severityOf(f) >= gpu.Critical {
			unhealthy = append(unhealthy, f.GPU+" "+strings.Join(namesOf([]v1alpha1.GPUFault{f}), ""))
		}
	}
	if len(unhealthy) > 0 {
		healthy.Met, healthy.Reason, healthy.Message = false, ReasonFaults, some(unhealthy)
	}
	return []phase.Condition{healthy, reboot}
}

// Resets reports whether faults of a GPU need a reset or more. Then GPUs that are reset together with it must be drained too.
func Resets(faults []v1alpha1.GPUFault) bool {
	return slices.ContainsFunc(faults, func(f v1alpha1.GPUFault) bool { return remedyOf(f) >= gpu.Reset })
}

// Reach returns the devices to drain before the Critical or Fatal faults of a GPU can end: device names if only programs of those devices must end,
// nil for the whole GPU (see Resets).
func Reach(faults []v1alpha1.GPUFault) []string {
	var devices []string
	for _, f := range faults {
		switch remedy := remedyOf(f); {
		case remedy > gpu.Restart || remedy == gpu.Restart && f.Device == "":
			return nil
		case remedy == gpu.Restart:
			devices = append(devices, f.Device)
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}
