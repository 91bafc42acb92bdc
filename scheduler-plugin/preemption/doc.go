// Package preemption evicts pods of lower priority for the devices that they hold.
//
// It embeds kube-scheduler's DefaultPreemption, which by itself never evicts for devices, and replaces which nodes
// and pods are considered and which of them are chosen (package victims). Eligibility, PodDisruptionBudgets,
// eviction, nomination and Events are DefaultPreemption's own. The devices that the victims release are kept for the
// preempting pod in the index (nominations).
package preemption
