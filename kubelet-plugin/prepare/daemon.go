package prepare

import "context"

// Daemon is an MPS control daemon as it must run.
type Daemon struct {
	// Name is unique on the node and a DNS label.
	Name string
	// GPU is the name of the GPU that a shared daemon serves, ClaimUID the claim of a private one; the
	// other is empty.
	GPU, ClaimUID string
	// Visible is what the daemon serves: UUIDs of GPUs, or of one MIG device, separated by commas
	// (CUDA_VISIBLE_DEVICES).
	Visible string
	// ActiveThreadPercentage bounds every client's part of the multiprocessors, 1 to 100; 0 is no limit.
	ActiveThreadPercentage int
	// PinnedMemoryBytes bounds every client's memory on each device; 0 is no limit.
	PinnedMemoryBytes int64
}

// DaemonFolders are the host folders through which clients reach a daemon.
type DaemonFolders struct {
	// Pipe holds the daemon's sockets, Shm the memory that it shares with its clients.
	Pipe, Shm string
}

// Daemons runs MPS control daemons. Implementations are safe for concurrent use by several processes;
// calls for one daemon are serialized by the caller through the lock of its GPU or claim. A daemon
// outlives the agent.
type Daemons interface {
	// Ensure makes the daemon run as described, whatever ran before, and returns when clients can
	// connect under these limits.
	Ensure(ctx context.Context, d Daemon) (DaemonFolders, error)
	// Release ends the daemon and returns when no process of it is left. A missing one is no error.
	Release(ctx context.Context, name string) error
	// List returns the daemons of the node with Name, GPU and ClaimUID.
	List(ctx context.Context) ([]Daemon, error)
}
