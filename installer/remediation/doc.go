// Package remediation computes the remediation step of one faulted GPU and the next action. Like package phase it is pure: a table of rules over
// values, without clock, client or state, so a crash after any action is equivalent to a restart. Persistent state is in the GPUNode:
// spec.remediations, status.remediations, status.history.
package remediation
