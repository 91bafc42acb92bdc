package v1alpha1

// The reasons of attempts that ended before anything was touched: the node serves as before, and no driver is to blame.
const (
	AttemptDrainBlocked       = "DrainBlocked"       // pods may not be evicted, or did not leave
	AttemptClaimsPrepared     = "ClaimsPrepared"     // claims stayed prepared though no pod uses them
	AttemptClaimUnreadable    = "ClaimUnreadable"    // a claim could not be read
	AttemptAgentNotResponding = "AgentNotResponding" // the agent did not say that it refuses Prepares
)

// Undisturbed reports whether the attempt ended before anything was touched.
func (a *Attempt) Undisturbed() bool {
	switch a.Reason {
	case AttemptDrainBlocked, AttemptClaimsPrepared, AttemptClaimUnreadable, AttemptAgentNotResponding:
		return true
	default:
		return false
	}
}
