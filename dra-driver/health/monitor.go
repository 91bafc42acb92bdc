package health

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Hardware is the part of the driver that a Monitor uses.
type Hardware interface {
	// WatchEvents calls handle for every XID of every GPU from now on, in order, until ctx ends or the connection to the driver is closed; it
	// returns the reason. The error wraps gpu.ErrNoDriver if there is no connection.
	WatchEvents(ctx context.Context, handle func(gpu.Event)) error
	// Check reads the health of one GPU. The error wraps gpu.ErrLost if the GPU does not respond, and gpu.ErrNoDriver if no GPU can be
	// queried. If ctx ends before the driver could be queried, as during a driver upgrade or a reset of another GPU, the error is that of
	// ctx, which is no evidence of a fault.
	Check(ctx context.Context, gpuName string) (gpu.Checkup, error)
	// ChangedSince reports whether this process has changed a GPU since the time, or is changing one: created or destroyed a MIG device, or set the MIG
	// mode. The driver may answer late or not at all then, which is no evidence against a GPU.
	ChangedSince(at time.Time) bool
	// Present reports whether a device is at the GPU's PCI address, with or without a driver. It returns true if that cannot be determined.
	Present(gpuName string) bool
}

// Store saves the health durably.
type Store interface {
	// LoadHealth returns what was saved last; the zero value if nothing was. An unreadable file is set aside and counts as nothing.
	LoadHealth() (gpu.Health, error)
	// SaveHealth saves h if leads returns true, and returns whether it did. leads is called while no other agent can load or save.
	SaveHealth(h gpu.Health, leads func() bool) (saved bool, err error)
}

// Records lists what claims hold.
type Records interface {
	// Held returns the devices that claims hold. all is false if some records cannot be read, so that there may be more.
	Held() (held []gpu.Device, all bool, err error)
}

// Inventory returns the node.
type Inventory interface {
	// Watch returns the last snapshot of the node, whose GPUs are checked, and a channel that is closed when there is a newer one, for
	// example because the driver was opened again.
	Watch() (node gpu.Node, known bool, outdated <-chan struct{})
}

// Config is what a Monitor needs. Fields are required unless stated otherwise.
type Config struct {
	Hardware  Hardware
	Store     Store
	Records   Records
	Inventory Inventory
	Rules     gpu.Rules
	// Boot is the ID of this boot.
	Boot string
	// Leads reports whether this agent leads; only the leading agent saves.
	Leads func() bool
	// Report receives the faults in effect with severity Warning or worse, whenever they change. A fault that begins, ends or changes its
	// severity is reported immediately, other changes at most once a second. How often a condition was found is not a change. Report is
	// called by New, with the faults that were saved, and by Run, and must not block.
	Report func([]gpu.Fault)
	// Detected receives the time from an event, or from the start of a check, until the new or worse fault was passed to Report. Optional.
	Detected func(time.Duration)
	// Received is called for each XID; XIDs that arrived together are one event with a count. Optional.
	Received func(gpu.Event)
	// Period is the time between two checks of a GPU; 1 s by default.
	Period time.Duration
}

// The times of a Monitor.
const (
	// defaultPeriod is the default of Config.Period.
	defaultPeriod = time.Second
	// reportCountsPeriod and saveCountsPeriod limit how often a change is reported and saved that concerns only counts and times.
	reportCountsPeriod = time.Second
	saveCountsPeriod   = 10 * time.Second
	// checkTimeout limits a check. A GPU whose check takes a period longer counts as lost. NVML was seen to stall for 10 s and longer while MIG devices
	// are created or destroyed, by any program (NVIDIA's DRA driver, nvlib.go).
	checkTimeout = 30 * time.Second
	// slowCheck is the duration after which a check is logged as slow.
	slowCheck = 5 * time.Second
	// maxTimeouts is the number of consecutive timeouts of one GPU, while checks of other GPUs that began later succeed, after which the GPU
	// counts as lost.
	maxTimeouts = 3
	// silenceTimeout is the time without any completed check after which the driver counts as missing. It is longer than a reset and than
	// opening a driver.
	silenceTimeout = 5 * time.Minute
	// eventPause is the pause before the next events are processed after events that changed nothing.
	eventPause = 20 * time.Millisecond
	// saveTimeout limits the wait for the disk. After it, faults are reported although they are not saved.
	saveTimeout = 500 * time.Millisecond
)

// Monitor determines the faults of the node's GPUs from events and periodic checks. Its methods are safe for concurrent use.
//
// One goroutine, Run, owns the state: events and results of checks arrive through channels. After each of them it judges (rules of
// api/gpu), then saves, then reports, in this order: a fault that was reported, so that devices were tainted and pods evicted, is still
// known after a restart. If the disk fails or does not respond, the fault is reported nevertheless, because keeping claims off a faulted
// GPU is more important.
type Monitor struct {
	config Config
	// faults is the value that Faults returns.
	faults  atomic.Pointer[[]gpu.Fault]
	events  *eventQueue
	results chan *check
	resets  chan resetNotice
	// ended is closed when Run returns.
	ended chan struct{}

	// The remaining fields are used by New and then only by Run.

	health gpu.Health
	// checked are the last successful checks of the GPUs that respond, running the checks in progress; both by the GPU's name.
	checked map[string]gpu.Checkup
	running map[string]*check
	// timeouts counts consecutive timeouts per GPU while other GPUs could be checked, silentRounds the rounds without any completed check.
	timeouts     map[string]int
	silentRounds int
	// missing counts the rounds in which a GPU with stored faults was absent.
	missing   map[string]int
	stored    storeState
	reporting reportState
	// logged are the errors in effect that were logged, by operation.
	logged map[string]string
}

// New returns a monitor after it has loaded and reported the saved faults: nothing is published before the first report.
func New(ctx context.Context, c Config) (*Monitor, error) {
	if c.Boot == "" {
		return nil, errors.New("monitor the health of GPUs: the boot ID is not set")
	}
	if c.Period == 0 {
		c.Period = defaultPeriod
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

// Run monitors until ctx ends and returns nil. It must be called once.
func (m *Monitor) Run(ctx context.Context) error {
	defer close(m.ended)
	go m.watchEvents(ctx)
	tick := time.NewTicker(m.config.Period)
	defer tick.Stop()
	var pauseEnd <-chan time.Time
	m.startChecks(ctx)
	for {
		// During a pause, events only accumulate: a fault that the driver repeats 1,000 times a second costs 50 rounds a second.
		events := m.events.ready
		if pauseEnd != nil {
			events = nil
		}
		var resetSaved chan struct{}
		select {
		case <-ctx.Done():
			m.saveBeforeExit(ctx)
			return nil
		case <-tick.C:
			m.takeLead(ctx)
			m.startChecks(ctx)
		case c := <-m.results:
			m.handleResult(ctx, c)
		case <-events:
			if !m.processEvents() {
				pauseEnd = time.After(eventPause)
			}
		case <-pauseEnd:
			pauseEnd = nil
		case r := <-m.resets:
			m.applyReset(r)
			resetSaved = r.saved
		}
		m.save(ctx)
		m.publishFaults()
		m.report()
		if resetSaved != nil {
			close(resetSaved)
		}
	}
}

// Faults returns all stored faults, including harmless and ended ones, by GPU, placement, signal and XID. The caller must not modify them.
func (m *Monitor) Faults() []gpu.Fault { return *m.faults.Load() }

// publishFaults sets the value of Faults.
func (m *Monitor) publishFaults() {
	faults := m.health.Faults
	m.faults.Store(&faults)
}

// clearFaults ends the faults whose conditions for that are met, after the GPU was checked. A fault that is cleared by a restart of the
// affected pods ends when no claim holds the device; the records of claims are read only if the GPU has such a fault.
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

// waitsForRelease reports whether the GPU has a fault in effect that ends when no claim holds the affected device.
func (m *Monitor) waitsForRelease(gpuName string) bool {
	for _, f := range m.health.Faults {
		if f.GPU == gpuName && f.InEffect() && f.Severity > gpu.Harmless && f.Remedy == gpu.Restart {
			return true
		}
	}
	return false
}

// logError logs the first error of an operation since it last succeeded. All operations are retried.
func (m *Monitor) logError(ctx context.Context, operation string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && m.logged[operation] == "" {
		klog.FromContext(ctx).Error(err, "Health monitoring is degraded, retrying", "op", operation)
	}
	m.logged[operation] = text
}
