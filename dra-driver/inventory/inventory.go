package inventory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Hardware is the driver of the node as the inventory needs it.
type Hardware interface {
	// Driver returns a fingerprint of the installed driver, which differs when another one was
	// installed or loaded; empty while there is none. It is called every few seconds and must be cheap.
	Driver() string
	// Reopen connects to the driver that is installed now. An error wraps gpu.ErrNoDriver when there
	// is none.
	Reopen(ctx context.Context) error
	// Read reads the node without its name. A GPU that does not answer is marked lost. An error that
	// wraps gpu.ErrNoDriver means that the connection is of no use until it is reopened.
	Read(ctx context.Context) (gpu.Node, error)
}

// Records are what the node keeps about claims: only they know which instances are ours.
type Records interface {
	// Held returns everything that some claim's record holds, from before it is carved until after it
	// is destroyed; what a claim only watches (admin access) is not held. all is false while a record
	// cannot be read: then there may be more, and nothing is withheld.
	Held() (held []gpu.Device, all bool, err error)
}

// Config is what an Inventory works with.
type Config struct {
	// Node is the Kubernetes node name.
	Node     string
	Hardware Hardware
	Records  Records
	// Poll is how often it is looked for another driver; 2 s by default.
	Poll time.Duration
	// Period is how often the hardware is read although nobody asked; 10 s by default. It is how
	// instances and modes that an administrator changes are noticed.
	Period time.Duration
}

// Inventory is the current picture of the node. All methods but New and Run return at once and are
// safe for concurrent use.
type Inventory struct {
	config  Config
	current atomic.Pointer[snapshot]
	refresh chan struct{}
	// mu is held while the current picture is replaced, never while the hardware is read. marks are
	// behind it.
	mu      sync.Mutex
	overlay overlay

	// The rest belongs to New and then to Run.

	// driver is the fingerprint of the driver that is open; empty while none is.
	driver string
	// logged is the last error that was logged, while it lasts.
	logged string
}

// snapshot is what was found. It is never changed.
type snapshot struct {
	node gpu.Node
	// known is false until the hardware was read once or found to be without a driver.
	known bool
	// foreign are the instances that no record owns.
	foreign []gpu.Instance
	// driverGoneSince is since when the driver is away; zero: it is not. Every GPU is lost then.
	driverGoneSince time.Time
	// outdated is closed when there is a newer picture.
	outdated chan struct{}
}

// New returns an inventory that has read the hardware once, so that the first claim finds its GPU. A
// node without a driver or with a sick one is no error: Run waits for it. On real hardware opening the
// driver can take seconds.
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

// Run keeps the picture current until ctx ends. Call it once.
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

// Node returns the node as it was last read. What a GPU holds may have changed since. The caller may
// change the list of GPUs but nothing below it.
func (i *Inventory) Node() gpu.Node {
	node, _, _ := i.Watch()
	return node
}

// Watch is Node with two more answers: whether the node is known, which it is not before the hardware
// was read once or found to be without a driver; and a channel that is closed as soon as any of this
// changes.
func (i *Inventory) Watch() (node gpu.Node, known bool, outdated <-chan struct{}) {
	p := i.current.Load()
	node = p.node
	node.GPUs = slices.Clone(node.GPUs)
	return node, p.known, p.outdated
}

// ForeignInstances returns the MIG devices that no record owns: somebody made them by other means. Their
// slices are withheld, and nobody but their maker removes them.
func (i *Inventory) ForeignInstances() []gpu.Instance {
	return slices.Clone(i.current.Load().foreign)
}

// Refresh asks for the hardware to be read again soon. It does not wait; calls that come faster than
// the hardware can be read count once.
func (i *Inventory) Refresh() {
	select {
	case i.refresh <- struct{}{}:
	default:
	}
}
