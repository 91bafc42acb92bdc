// Package handover decides which of the agents that run on one node at the same time leads.
//
// During an upgrade two agent pods overlap. Each holds a lock on a file of its own; the one that joined last and still runs leads: it
// publishes ResourceSlices and writes the common CDI spec. All of them serve kubelet's calls. The locks are open file description locks,
// which the kernel releases when the process ends for any reason. Changes of the folder are received through inotify. An agent that does not
// lead also checks every second, because the kernel reports the close of a file before it releases its lock.
package handover
