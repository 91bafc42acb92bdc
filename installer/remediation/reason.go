package remediation

// Reasons in status.remediations. installer/README.md explains each.
const (
	// Not started.
	ReasonSuggested       = "Suggested"
	ReasonOff             = "Off"
	ReasonPaused          = "Paused"
	ReasonNodeBusy        = "NodeBusy"
	ReasonBudgetExhausted = "BudgetExhausted"
	ReasonBackoff         = "Backoff"
	ReasonWaitingForPods  = "WaitingForPods"

	// In progress.
	ReasonHolding          = "Holding"
	ReasonDraining         = "Draining"
	ReasonRestarting       = "Restarting"
	ReasonRemovingMonitors = "RemovingMonitors"
	ReasonResetOrdered     = "ResetOrdered"
	ReasonResetting        = "Resetting"
	ReasonCheckingFaults   = "CheckingFaults"
	ReasonValidating       = "Validating"
	ReasonNotValidated     = "NotValidated"
	ReasonRecovered        = "Recovered"
	ReasonFaultCleared     = "FaultCleared"
	ReasonOrderRemoved     = "OrderRemoved"

	// Failed.
	ReasonHoldFailed         = "HoldFailed"
	ReasonAgentNotResponding = "AgentNotResponding"
	ReasonDrainBlocked       = "DrainBlocked"
	ReasonMonitorsNotRemoved = "MonitorsNotRemoved"
	ReasonGPUBusy            = "GPUBusy"
	ReasonResetFailed        = "ResetFailed"
	ReasonResetTimeout       = "ResetTimeout"
	ReasonFaultPersists      = "FaultPersists"
	ReasonFaultReturned      = "FaultReturned"
	ReasonValidationFailed   = "ValidationFailed"

	// Needs an administrator or a reboot.
	ReasonResetInsufficient  = "ResetInsufficient"
	ReasonRebooted           = "Rebooted"
	ReasonRebootInsufficient = "RebootInsufficient"
)
