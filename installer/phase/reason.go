package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// The reasons of decisions, by which people and programs tell why a node stands where it stands. Each is explained in installer/README.md. A pod's
// own reason, such as ImagePullBackOff or the ModuleInUse of a host verb, stands in the message.
const (
	// Why no operand is there.
	ReasonNodeGone         = "NodeGone"
	ReasonNotSelected      = "NotSelected"
	ReasonRemovingOperands = "RemovingOperands"
	ReasonGPUsInUse        = "GPUsInUse"

	// What somebody else must settle.
	ReasonDevicePluginPresent = "DevicePluginPresent"
	ReasonConflict            = "Conflict"
	ReasonHostDriverTooOld    = "HostDriverTooOld"
	ReasonHostDriverRefused   = "HostDriverRefused"
	ReasonNodeCordoned        = "NodeCordoned"
	ReasonNodeNotReady        = "NodeNotReady"
	ReasonNoDriver            = "NoDriver"

	// The driver.
	ReasonHostDriverKept    = "HostDriverKept"
	ReasonDriverAdopted     = "DriverAdopted"
	ReasonHardwareUnknown   = "HardwareUnknown"
	ReasonWaitingForRollout = "WaitingForRollout"
	ReasonDriverStarting    = "DriverStarting"
	ReasonDriverFailed      = "DriverFailed"
	ReasonDriverTimeout     = "DriverTimeout"
	ReasonDriverRemoving    = "DriverRemoving"

	// The runtime and the agent.
	ReasonToolkitStarting = "ToolkitStarting"
	ReasonToolkitFailed   = "ToolkitFailed"
	ReasonAgentStarting   = "AgentStarting"
	ReasonAgentFailed     = "AgentFailed"
	ReasonAgentStopping   = "AgentStopping"

	// Out of service.
	ReasonResetting           = "Resetting"
	ReasonEnteringMaintenance = "EnteringMaintenance"
	ReasonWaitingForAgent     = "WaitingForAgent"
	ReasonAgentNotResponding  = v1alpha1.AttemptAgentNotResponding
	ReasonWaitingForPods      = "WaitingForPods"
	ReasonDraining            = "Draining"
	ReasonClaimsPrepared      = v1alpha1.AttemptClaimsPrepared
	ReasonClaimUnreadable     = v1alpha1.AttemptClaimUnreadable
	ReasonDrainBlocked        = v1alpha1.AttemptDrainBlocked
	ReasonMIGModeChanging     = "MIGModeChanging"
	ReasonMIGModeFailed       = "MIGModeFailed"

	// The proof, and back into service.
	ReasonValidating        = "Validating"
	ReasonValidationFailed  = "ValidationFailed"
	ReasonValidationTimeout = "ValidationTimeout"
	ReasonRestoring         = "Restoring"
	ReasonInService         = "InService"

	// Conditions only.
	ReasonDriverReady      = "DriverReady"
	ReasonRuntimeReady     = "RuntimeReady"
	ReasonAgentReady       = "AgentReady"
	ReasonValidationPassed = "ValidationPassed"
	ReasonNotRequired      = "NotRequired"
)
