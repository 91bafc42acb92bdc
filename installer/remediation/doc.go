// Package remediation decides what becomes of one GPU that is not well: it names the step that its remediation is in and the next action. Like phase,
// it is pure: a table over values, without clock, client or memory, so a crash after any action is the same as a new start. What must
// outlive a restart stands in the GPUNode: spec.remediations, status.remediations, status.history.
package remediation
