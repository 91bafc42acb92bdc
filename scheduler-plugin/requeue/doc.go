// Package requeue decides when a rejected pod is tried again, and how.
//
// Requeuer retries pods that were rejected because the index had not yet processed an event that the scheduler
// had already processed. Hints carry, from one attempt to the next, what the next attempt must do differently.
package requeue
