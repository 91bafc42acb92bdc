package remediation

// The reasons in status.remediations, each of which is explained in installer/README.md.
const (
	// Why nothing has begun.
	ReasonSuggested       = "Suggested"
	ReasonOff             = "Off"
	ReasonPaused          = "Paused"
	ReasonNodeBusy        = "NodeBusy"
	ReasonBudgetExhausted = "BudgetExhausted"
	ReasonBackoff         = "Backoff"
	ReasonWaitingForPods  = "WaitingForPods"

	// What is being done.
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

	// What did not work.
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

	// What only a person or another boot can settle.
	ReasonResetInsufficient  = "ResetInsufficient"
	ReasonRebooted           = "Rebooted"
	ReasonRebootInsufficient = "RebootInsufficient"
)
