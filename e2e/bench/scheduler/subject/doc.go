// Package subject is the measured program of the scheduler's bench, in a separate process: a real
// kube-scheduler with one profile, or the null scheduler. The bench starts its own program again as a
// subject, creates the pods, and sends it the start of each batch; the subject returns its own processor
// time, memory and metrics.
package subject
