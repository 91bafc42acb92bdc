// Package subject is what the scheduler's bench measures, in a process of its own: a real kube-scheduler
// with one profile, or the null scheduler. The bench starts its own program anew as a subject, creates the
// pods, and tells it when to begin; what comes back are the subject's own processor time, memory and
// metrics.
package subject
