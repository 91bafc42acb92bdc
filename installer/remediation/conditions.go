package remediation

import (
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// The reasons of conditions.
const (
	ReasonNoFaults     = "NoFaults"
	ReasonFaults       = "Faults"
	ReasonRequested    = "Requested"
	ReasonNotRequested = "NotRequested"
)

// Conditions returns GPUsHealthy and RebootRequired of a GPUNode, of what its agent says and of where remediations stand. While no agent
// speaks nothing is known of the GPUs, and only RebootRequired is returned: the other one stays as it is.
func Conditions(speaks bool, faults []v1alpha1.GPUFault, remedies []v1alpha1.RemediationStatus) []phase.Condition {
	reboot := phase.Condition{Type: v1alpha1.ConditionRebootRequired, Reason: ReasonNotRequested}
	var asked []string
	for _, s := range remedies {
		if s.Step == v1alpha1.RemediationStepRebootRequested && s.Reason != ReasonRebooted {
			asked = append(asked, s.GPU+": "+s.Message)
		}
	}
	if len(asked) > 0 {
		reboot.Met, reboot.Reason, reboot.Message = true, ReasonRequested, some(asked)
	}
	if !speaks {
		return []phase.Condition{reboot}
	}
	healthy := phase.Condition{Type: v1alpha1.ConditionGPUsHealthy, Met: true, Reason: ReasonNoFaults}
	var ill []string
	for _, f := range faults {
		if severityOf(f) >= gpu.Critical {
			ill = append(ill, f.GPU+" "+strings.Join(namesOf([]v1alpha1.GPUFault{f}), ""))
		}
	}
	if len(ill) > 0 {
		healthy.Met, healthy.Reason, healthy.Message = false, ReasonFaults, some(ill)
	}
	return []phase.Condition{healthy, reboot}
}

// Resets reports whether faults of a GPU need a reset or more: then those that are reset along with it must be empty, too.
func Resets(faults []v1alpha1.GPUFault) bool {
	return slices.ContainsFunc(faults, func(f v1alpha1.GPUFault) bool { return remedyOf(f) >= gpu.Reset })
}

// Reach is what must be empty before the faults of a GPU, those that are Critical or Fatal, can end: names of devices when only the programs
// of those must; none: the whole GPU, see Resets.
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
