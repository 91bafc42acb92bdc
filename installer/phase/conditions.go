package phase

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Names of operands in status.components.
const (
	ComponentDriver    = "driver"
	ComponentToolkit   = "toolkit"
	ComponentAgent     = "node-agent"
	ComponentValidator = "validator"
	// ComponentVGPUDevices is listed only on nodes with its pod.
	ComponentVGPUDevices = "vgpu-device-manager"
)

// conditions returns the current state of the four validations, always in the same order, and DriverRefuses if a GPU was ever busy.
func conditions(v *view) []Condition {
	list := []Condition{driverCondition(v), toolkitCondition(v), agentCondition(v), workloadCondition(v)}
	if c := busyCondition(v); c.Met || meta.FindStatusCondition(v.Status.Conditions, c.Type) != nil {
		list = append(list, c)
	}
	return list
}

// busyCondition reports the GPUs on which the agent does not retry for a while what the driver refuses.
func busyCondition(v *view) Condition {
	c := Condition{Type: v1alpha1.ConditionDriverRefuses, Reason: ReasonNotRefused}
	if !v.AgentReports() {
		return c
	}
	var refused []string
	for _, busy := range v.Status.Agent.BusyGPUs {
		if busy.State == v1alpha1.BusyRefused {
			refused = append(refused, busy.GPU+": "+busy.Message)
		}
	}
	if len(refused) > 0 {
		c.Met, c.Reason, c.Message = true, ReasonGPUInUse, strings.Join(refused, "; ")
	}
	return c
}

func driverCondition(v *view) Condition {
	c := Condition{Type: v1alpha1.ConditionDriverValidated}
	hosts := v.Status.Hardware != nil && v.Status.Hardware.HostDriver != ""
	switch {
	case !v.Wanted.Managed || v.Wanted.Sandbox:
		c.Reason = ReasonNotRequired
	case v.driver == "" && hosts && !v.otherDriver():
		c.Met, c.Reason, c.Message = true, ReasonHostDriverKept, "the host's driver "+v.Status.Hardware.HostDriver
	case v.driver == "":
		c.Reason = ReasonNoDriver
	case v.driverReady():
		c.Met, c.Reason = true, ReasonDriverReady
	case v.Driver.State == PodFailed:
		c.Reason, c.Message = ReasonDriverFailed, v.Driver.Name+v.Driver.why()
	default:
		c.Reason, c.Message = ReasonDriverStarting, v.Driver.Name+v.Driver.why()
	}
	return c
}

func toolkitCondition(v *view) Condition {
	c := Condition{Type: v1alpha1.ConditionToolkitValidated}
	switch {
	case !v.Wanted.Managed || !v.Wanted.Toolkit:
		c.Reason = ReasonNotRequired
	case v.runtimeReady():
		c.Met, c.Reason = true, ReasonRuntimeReady
	case v.Toolkit.State == PodFailed:
		c.Reason, c.Message = ReasonToolkitFailed, v.Toolkit.Name+v.Toolkit.why()
	default:
		c.Reason, c.Message = ReasonToolkitStarting, v.Toolkit.Name+v.Toolkit.why()
	}
	return c
}

func agentCondition(v *view) Condition {
	c := Condition{Type: v1alpha1.ConditionAgentValidated}
	switch {
	case v.agent == "":
		c.Reason = ReasonNotRequired
	case v.AgentAccepted() || v.agentGraced():
		c.Met, c.Reason = true, ReasonAgentReady
	case v.Agent.State == PodFailed:
		c.Reason, c.Message = ReasonAgentFailed, v.Agent.Name+v.Agent.why()
	default:
		c.Reason, c.Message = ReasonAgentStarting, v.Agent.Name+v.agentWhy()
	}
	return c
}

func workloadCondition(v *view) Condition {
	c := Condition{Type: v1alpha1.ConditionWorkloadValidated}
	switch {
	case !v.Wanted.Managed || !v.proves():
		c.Reason = ReasonNotRequired
	case v.validated():
		c.Met, c.Reason, c.Message = true, ReasonValidationPassed, v.Status.Validated.Message
	case v.Validation.State == ValidationFailed:
		c.Reason, c.Message = ReasonValidationFailed, v.Validation.Reason+": "+v.Validation.Message
	default:
		c.Reason = ReasonValidating
	}
	return c
}
