package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// Reasons of decisions, reported in status.reason and conditions. installer/README.md explains each. A pod's own reason, such as ImagePullBackOff or
// the ModuleInUse of a host verb, is part of the message.
const (
	// No operands on the node.
	ReasonNodeGone         = "NodeGone"
	ReasonNotSelected      = "NotSelected"
	ReasonRemovingOperands = "RemovingOperands"
	ReasonGPUsInUse        = "GPUsInUse"

	// Blocked until an administrator or another component acts.
	ReasonDevicePluginPresent = "DevicePluginPresent"
	ReasonKubeletTooOld       = "KubeletTooOld"
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
	ReasonDriverInUse       = "DriverInUse"

	// The runtime and the agent.
	ReasonToolkitStarting = "ToolkitStarting"
	ReasonToolkitFailed   = "ToolkitFailed"
	ReasonAgentStarting   = "AgentStarting"
	ReasonAgentFailed     = "AgentFailed"
	ReasonAgentStopping   = "AgentStopping"

	// Maintenance.
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

	// Validation and return to service.
	ReasonValidating        = "Validating"
	ReasonValidationFailed  = "ValidationFailed"
	ReasonValidationTimeout = "ValidationTimeout"
	ReasonRestoring         = "Restoring"
	ReasonInService         = "InService"

	// Reasons of pods on which decisions depend. A pod can have others.
	ReasonImagePullBackOff = "ImagePullBackOff"
	ReasonImageNotFound    = "ImageNotFound"
	ReasonImagePlatform    = "ImagePlatformMissing"
	ReasonKernelPackages   = "KernelPackagesMissing"
	ReasonHeadersMissing   = "HeadersMissing"
	ReasonRepository       = "RepositoryNotReachable"
	ReasonNetworkDriver    = "NetworkDriverMismatch"
	ReasonNoSupportedGPU   = "NoSupportedGPU"
	ReasonModuleInUse      = "ModuleInUse"
	ReasonRootBusy         = "RootBusy"

	// Used only in conditions.
	ReasonDriverReady      = "DriverReady"
	ReasonRuntimeReady     = "RuntimeReady"
	ReasonAgentReady       = "AgentReady"
	ReasonValidationPassed = "ValidationPassed"
	ReasonNotRequired      = "NotRequired"
	ReasonNotRefused       = "NotRefused"
	ReasonGPUInUse         = "GPUInUse"
)
