// Package maintenance takes GPUs of the node out of service and resets them, as the GPUNode orders.
//
// # The gate
//
// While spec.maintenance is set, claims that are not ready are refused. What applies is the Closure: a file next to the records of
// claims, read by every agent of the node on every call (Gate). It survives restarts and an API server that cannot be reached, and two
// agents that overlap during an upgrade never disagree. Only the leading agent writes it (Enforcer).
//
// Each call holds a shared lock from before it reads the closure until its claim is ready or given up. When the exclusive lock can be
// had after the closure was written, every call that read an older closure has ended, in all agents. Only then the maintenance is
// acknowledged. From there on nothing is prepared except the installer's validations, and these only during the validation step.
// So an acknowledgement with zero prepared claims stays true until the maintenance ends.
//
// # Resets
//
// An entry of spec.remediations holds one GPU together with the GPUs that are reset along with it. Holds are part of the same closure and use
// the same locks, one per GPU, so that claims of other GPUs are not affected. If the order is Reset, the GPUs are reset in the background
// as soon as no claim is prepared on them and their locks are free: once for each ID, also across restarts. The outcome is stored next to
// the closure and removed some time after the entry is gone.
package maintenance
