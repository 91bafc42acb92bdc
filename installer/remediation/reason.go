package remediation

// The reasons in status.remediations, each of which is explained in installer/README.md.
const (
	// Why nothing has begun.
	ReasonSuggested      = "Suggested"
	ReasonOff            = "Off"
	ReasonPaused         = "Paused"
	ReasonBusy           = "Busy"
	ReasonBudget         = "Budget"
	ReasonResting        = "Resting"
	ReasonWaitingForPods = "WaitingForPods"

	// What is being done.
	ReasonHolding     = "Holding"
	ReasonDraining    = "Draining"
	ReasonRestarting  = "Restarting"
	ReasonMakingRoom  = "MakingRoom"
	ReasonOrdered     = "Ordered"
	ReasonResetting   = "Resetting"
	ReasonChecking    = "Checking"
	ReasonValidating  = "Validating"
	ReasonUnproven    = "Unproven"
	ReasonRecovered   = "Recovered"
	ReasonEnded       = "Ended"
	ReasonOrderIsGone = "OrderIsGone"

	// What did not work.
	ReasonHoldFailed       = "HoldFailed"
	ReasonAgentSilent      = "AgentSilent"
	ReasonDrainBlocked     = "DrainBlocked"
	ReasonMonitoringStays  = "MonitoringStays"
	ReasonGPUBusy          = "GPUBusy"
	ReasonResetFailed      = "ResetFailed"
	ReasonResetTimeout     = "ResetTimeout"
	ReasonFaultStays       = "FaultStays"
	ReasonFaultComesBack   = "FaultComesBack"
	ReasonValidationFailed = "ValidationFailed"

	// What only a person or another boot can settle.
	ReasonBeyondReset   = "BeyondReset"
	ReasonRebooted      = "Rebooted"
	ReasonRebootUseless = "RebootUseless"
)
