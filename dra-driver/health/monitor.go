package health

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Hardware is the driver of the node as the monitor needs it.
type Hardware interface {
	// WatchEvents tells every XID of every GPU from now on, in order, until ctx ends or there is no connection to the driver; it returns why.
	// An error that wraps gpu.ErrNoDriver means the latter.
	WatchEvents(ctx context.Context, tell func(gpu.Event)) error
	// Check looks at one GPU. An error that wraps gpu.ErrLost means that the GPU does not answer, one that wraps gpu.ErrNoDriver that no
	// GPU can be asked. When ctx ends before the driver could be asked, as while it is being replaced or another GPU is reset, the error is
	// that of ctx, and nothing follows.
	Check(ctx context.Context, gpuName string) (gpu.Checkup, error)
	// Present reports whether there is a GPU in the place, whether or not anybody can ask it anything. In doubt there is.
	Present(gpuName string) bool
}

// Store keeps what is remembered, durably.
type Store interface {
	// LoadHealth returns what was saved last; nothing was when the value is zero. What cannot be read was set aside and reported.
	LoadHealth() (gpu.Health, error)
	// SaveHealth saves it if leads says so, which is asked while nobody else can load or save, and returns whether it did.
	SaveHealth(h gpu.Health, leads func() bool) (saved bool, err error)
}

// Records tell what claims hold.
type Records interface {
	Held() (held []gpu.Device, all bool, err error)
}

// Inventory shows the node.
type Inventory interface {
	// Watch returns the node as it was last read, of which the GPUs are looked at, and a channel that is closed when that changes, as
	// it does when the driver is opened again.
	Watch() (node gpu.Node, known bool, outdated <-chan struct{})
}

// Config is what a Monitor works with.
type Config struct {
	Hardware  Hardware
	Store     Store
	Records   Records
	Inventory Inventory
	// Report is given the faults in effect, Warning or worse, whenever they change: a fault that comes, goes or becomes better or worse at
	// once, other changes at most once a second; how often a look found a condition is no change. It is called by New, when faults are
	// remembered, and by Run, and returns at once.
	Report func([]gpu.Fault)
	// Detected, if it is set, is told how long it took from an event, or from the beginning of a look, until Tell was given a fault
	// that had come or become worse.
	Detected func(time.Duration)
	// Heard, if it is set, is told of every XID; as many as came together are one with a count.
	Received func(gpu.Event)
	Rules    gpu.Rules
	// Boot is the id of this boot.
	Boot string
	// Leads reports whether this agent speaks for the node: it alone saves.
	Leads func() bool
	// Period is how often every GPU is looked at; 1 s by default.
	Period time.Duration
}

// The times of a monitor.
const (
	// period is how often every GPU is looked at by default.
	period = time.Second
	// reportCountsPeriod and saveCounts are how often changes are told and saved that only say how often and when.
	reportCountsPeriod, saveCountsPeriod = time.Second, 10 * time.Second
	// checkTimeout is how long a look may take. A GPU that lets one wait for a period longer counts as lost.
	checkTimeout = 5 * time.Second
	// maxTimeouts is how many looks in a row may end with their time while others that began later are over. deaf is how long none may be over: longer than
	// any reset takes, and opening a driver.
	maxTimeouts    = 3
	silenceTimeout = 5 * time.Minute
	// eventPause is how long no events are taken in after some that said nothing new.
	eventPause = 20 * time.Millisecond
	// saveTimeout is how long the disk is waited for before something is told although it is not saved.
	saveTimeout = 500 * time.Millisecond
)

// Monitor watches the GPUs of the node. Its methods are safe for concurrent use.
type Monitor struct {
	config Config
	// faults are those that Faults returns.
	faults  atomic.Pointer[[]gpu.Fault]
	events  *eventQueue
	results chan *check
	resets  chan resetNotice
	// ended is closed when Run returns.
	ended chan struct{}

	// The rest belongs to New and then to Run.

	health gpu.Health
	// checked are the last looks at the GPUs that answer, looking when the looks that are not over began, by the GPU's name.
	checked map[string]gpu.Checkup
	running map[string]*check
	// timeouts are how many looks at each GPU in a row ended with their time while another GPU was heard, silence how many rounds of looks there were
	// since any was.
	timeouts     map[string]int
	silentRounds int
	// missing are for how many rounds GPUs that something is remembered of have not been there.
	missing   map[string]int
	stored    storeState
	reporting reportState
	// logged are the last errors that were logged, while they last, by what was tried.
	logged map[string]string
}

// New returns a monitor that has told what is remembered.
func New(ctx context.Context, c Config) (*Monitor, error) {
	if c.Boot == "" {
		return nil, errors.New("watch the health of GPUs: the id of this boot must be known")
	}
	if c.Period == 0 {
		c.Period = period
	}
	m := &Monitor{
		config: c, events: newEventQueue(), results: make(chan *check), resets: make(chan resetNotice), ended: make(chan struct{}),
		health: gpu.Health{Boot: c.Boot}, checked: map[string]gpu.Checkup{}, running: map[string]*check{},
		timeouts: map[string]int{}, missing: map[string]int{}, logged: map[string]string{},
	}
	m.load(ctx)
	m.publishFaults()
	m.report()
	return m, nil
}

// Run watches until ctx ends. Call it once.
func (m *Monitor) Run(ctx context.Context) error {
	defer close(m.ended)
	go m.watchEvents(ctx)
	tick := time.NewTicker(m.config.Period)
	defer tick.Stop()
	var rested <-chan time.Time
	m.startChecks(ctx)
	for {
		events := m.events.ready
		if rested != nil {
			events = nil
		}
		var remembered chan struct{}
		select {
		case <-ctx.Done():
			m.saveBeforeExit(ctx)
			return nil
		case <-tick.C:
			m.takeLead(ctx)
			m.startChecks(ctx)
		case l := <-m.results:
			m.handleResult(ctx, l)
		case <-events:
			if !m.processEvents() {
				rested = time.After(eventPause)
			}
		case <-rested:
			rested = nil
		case r := <-m.resets:
			m.applyReset(r)
			remembered = r.saved
		}
		m.save(ctx)
		m.publishFaults()
		m.report()
		if remembered != nil {
			close(remembered)
		}
	}
}

// Faults returns everything that is remembered, also what is harmless and what is over, by GPU, placement, signal and number.
func (m *Monitor) Faults() []gpu.Fault { return *m.faults.Load() }

// publishFaults lets Faults return what is remembered now.
func (m *Monitor) publishFaults() {
	faults := m.health.Faults
	m.faults.Store(&faults)
}

// clearFaults ends what is over.
func (m *Monitor) clearFaults(ctx context.Context, gpuName string) {
	s := gpu.Situation{Now: time.Now(), Boot: m.config.Boot, Checked: m.checked}
	if m.waitsForRelease(gpuName) {
		var err error
		if s.Held, s.All, err = m.config.Records.Held(); err != nil {
			s.All = false
		}
		m.logError(ctx, "read what claims hold", err)
	}
	m.health = m.health.Settle(m.config.Rules, s)
}

// waitsForRelease reports whether the GPU has a fault that is over when no claim holds what it affects: only then the records are read.
func (m *Monitor) waitsForRelease(gpuName string) bool {
	for _, f := range m.health.Faults {
		if f.GPU == gpuName && f.InEffect() && f.Severity > gpu.Harmless && f.Remedy == gpu.Restart {
			return true
		}
	}
	return false
}

// logError logs an error that differs from the last one of what was tried.
func (m *Monitor) logError(ctx context.Context, tried string, err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && m.logged[tried] == "" {
		klog.FromContext(ctx).Error(err, "The health of GPUs is not known or kept as it should, trying again", "op", tried)
	}
	m.logged[tried] = said
}
