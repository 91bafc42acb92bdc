// Package handover decides which of the agents that run on one node at the same time speaks for it.
//
// During an upgrade two agent pods overlap. Each holds a lock on a file of its own; the one that
// joined last and is still alive leads: it publishes slices and writes the common CDI spec. All of
// them serve calls. The locks are open-file-description locks, which the kernel releases when their
// holder dies in whatever way. The folder is watched, not polled, but by an agent that stands back: it
// looks again each second, since the kernel tells of a death before it releases the dead one's lock.
package handover
