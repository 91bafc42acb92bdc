package v1alpha1

// The reasons of attempts that ended before the node was changed. The node is in service as before; the driver is not the cause.
const (
	AttemptDrainBlocked       = "DrainBlocked"       // pods may not be evicted, or did not leave
	AttemptClaimsPrepared     = "ClaimsPrepared"     // claims stayed prepared though no pod uses them
	AttemptClaimUnreadable    = "ClaimUnreadable"    // a claim could not be read
	AttemptAgentNotResponding = "AgentNotResponding" // the agent did not report that it refuses Prepares
)

// Undisturbed reports whether the attempt ended before the node was changed.
func (a *Attempt) Undisturbed() bool {
	switch a.Reason {
	case AttemptDrainBlocked, AttemptClaimsPrepared, AttemptClaimUnreadable, AttemptAgentNotResponding:
		return true
	default:
		return false
	}
}
