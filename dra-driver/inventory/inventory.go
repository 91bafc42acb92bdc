package inventory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Hardware is the part of the driver that an Inventory uses.
type Hardware interface {
	// Driver returns a fingerprint of the installed driver, which changes when another one is installed or loaded; empty without a driver. It is
	// called every few seconds and must be cheap.
	Driver() string
	// Reopen connects to the driver that is installed now. The error wraps gpu.ErrNoDriver if there is none.
	Reopen(ctx context.Context) error
	// Read reads the node without its name. A GPU that does not respond is marked lost. An error that wraps gpu.ErrNoDriver means that the
	// connection must be reopened.
	Read(ctx context.Context) (gpu.Node, error)
}

// Records are the records of claims, which determine which MIG devices belong to Tessera.
type Records interface {
	// Held returns the devices that claims hold, from before they are created until after they are destroyed. Admin access does not hold a
	// device. all is false while a record cannot be read: then there may be more, and nothing is withheld.
	Held() (held []gpu.Device, all bool, err error)
}

// Config has the dependencies and intervals of an Inventory.
type Config struct {
	// Node is the Kubernetes node name.
	Node     string
	Hardware Hardware
	Records  Records
	// Poll is the interval at which the fingerprint of the driver is checked; 2 s by default.
	Poll time.Duration
	// Period is the interval at which the hardware is read without a request; 10 s by default. The periodic read detects
	// MIG devices and modes that an administrator changes.
	Period time.Duration
}

// Inventory is the current snapshot of the node. All methods except New and Run return immediately and are safe for concurrent use.
type Inventory struct {
	config  Config
	current atomic.Pointer[snapshot]
	refresh chan struct{}
	// mu is held while the current snapshot is replaced, never while the hardware is read. It guards overlay.
	mu      sync.Mutex
	overlay overlay
	// problem is the text of the last read's error; empty after a read without an error.
	problem atomic.Pointer[string]

	// The remaining fields are used by New and then only by Run.

	// driver is the fingerprint of the open driver; empty without one.
	driver string
	// logged is the last logged error; empty after a read without an error.
	logged string
}

// snapshot is the state that was read. It is never modified.
type snapshot struct {
	node gpu.Node
	// known is false until the hardware was read once or found to be without a driver.
	known bool
	// foreign are the instances that no record owns.
	foreign []gpu.Instance
	// driverGoneSince is when the driver went away; zero while it is present. While it is away, every GPU is lost.
	driverGoneSince time.Time
	// outdated is closed when there is a newer snapshot.
	outdated chan struct{}
}

// New returns an inventory that has read the hardware once, so that the first claim finds its GPU. A missing or failing
// driver is not an error: Run retries. Opening the driver can take seconds.
func New(ctx context.Context, c Config) *Inventory {
	if c.Poll == 0 {
		c.Poll = 2 * time.Second
	}
	if c.Period == 0 {
		c.Period = 10 * time.Second
	}
	i := &Inventory{config: c, refresh: make(chan struct{}, 1)}
	i.current.Store(&snapshot{node: gpu.Node{Name: c.Node}, outdated: make(chan struct{})})
	i.update(ctx)
	return i
}

// Run keeps the snapshot current until ctx ends. It must be called once.
func (i *Inventory) Run(ctx context.Context) error {
	poll, period := time.NewTicker(i.config.Poll), time.NewTicker(i.config.Period)
	defer poll.Stop()
	defer period.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
			if i.driver == i.config.Hardware.Driver() {
				continue
			}
			i.driver = ""
		case <-period.C:
		case <-i.refresh:
		}
		i.update(ctx)
	}
}

// Node returns the node as it was last read. The MIG devices of a GPU may have changed since. The caller may modify the
// list of GPUs but nothing below it.
func (i *Inventory) Node() gpu.Node {
	node, _, _ := i.Watch()
	return node
}

// Watch is Node with two more results: whether the hardware has been read or found to be without a driver, and a channel
// that is closed as soon as any of this changes.
func (i *Inventory) Watch() (node gpu.Node, known bool, outdated <-chan struct{}) {
	p := i.current.Load()
	node = p.node
	node.GPUs = slices.Clone(node.GPUs)
	return node, p.known, p.outdated
}

// ForeignInstances returns the MIG devices that no record owns. Their memory slices are withheld, and Tessera never destroys them.
func (i *Inventory) ForeignInstances() []gpu.Instance {
	return slices.Clone(i.current.Load().foreign)
}

// Problem returns why the hardware could not be read the last time; empty if it could.
func (i *Inventory) Problem() string {
	if text := i.problem.Load(); text != nil {
		return *text
	}
	return ""
}

// Refresh requests that the hardware be read again. It does not wait; requests are merged while a read is in progress.
func (i *Inventory) Refresh() {
	select {
	case i.refresh <- struct{}{}:
	default:
	}
}
