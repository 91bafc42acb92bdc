package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// machine is a node with two GPUs, changed by the test while the monitor runs. It is as strict as the driver: no event is reported of a GPU
// without a connection, and there is one listener.
type machine struct {
	t  *testing.T
	mu sync.Mutex
	// apart, when set, is how long a look takes to notice that its time is over, while the connection is kept from it.
	apart time.Duration
	// away is true while there is no driver; connected is closed when the connection ends, outdated when the inventory has something new.
	away      bool
	connected chan struct{}
	outdated  chan struct{}
	node      gpu.Node
	cards     map[string]*card
	report    func(gpu.Event)
	listens   int
	held      []gpu.Device
	// changing is true while the agent changes a GPU, changed the time at which it last did.
	changing bool
	changed  time.Time
	// heldReads counts how often the records were read.
	heldReads int
}

// card is one GPU.
type card struct {
	lost       bool
	conditions map[gpu.Signal]gpu.Condition
	// hung, when set, is waited for before a look ends.
	hung chan struct{}
	// slow is whether a look is not over before its time is.
	slow   bool
	looked int
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, node: gputest.Node(t, "h100x2"), cards: map[string]*card{}, connected: make(chan struct{}), outdated: make(chan struct{})}
	for _, g := range m.node.GPUs {
		m.cards[g.Name()] = &card{conditions: map[gpu.Signal]gpu.Condition{}}
	}
	return m
}

func (m *machine) Watch() (gpu.Node, bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node, true, m.outdated
}

func (m *machine) Held() ([]gpu.Device, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heldReads++
	return slices.Clone(m.held), true, nil
}

func (m *machine) WatchEvents(ctx context.Context, report func(gpu.Event)) error {
	m.mu.Lock()
	m.listens++
	if m.away {
		m.mu.Unlock()
		return fmt.Errorf("listen: %w", gpu.ErrNoDriver)
	}
	if m.report != nil {
		m.t.Error("two WatchEvents calls at the same time")
	}
	m.report = report
	connected := m.connected
	m.mu.Unlock()
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-connected:
		err = fmt.Errorf("wait for events: %w", gpu.ErrNoDriver)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = nil
	return err
}

func (m *machine) Check(ctx context.Context, name string) (gpu.Checkup, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return gpu.Checkup{}, fmt.Errorf("check: %w", gpu.ErrNoDriver)
	}
	c := m.cards[name]
	c.looked++
	late := m.apart
	if c.slow {
		late = time.Millisecond
	}
	if late > 0 {
		m.mu.Unlock()
		<-ctx.Done()
		<-time.After(late)
		m.mu.Lock()
		return gpu.Checkup{}, ctx.Err()
	}
	if hung := c.hung; hung != nil {
		m.mu.Unlock()
		<-hung
		m.mu.Lock()
	}
	if err := ctx.Err(); err != nil {
		return gpu.Checkup{}, err
	}
	if c.lost {
		return gpu.Checkup{}, fmt.Errorf("check: %w", gpu.ErrLost)
	}
	g, err := m.node.Find(name)
	if err != nil {
		return gpu.Checkup{}, err
	}
	checkup := gpu.Checkup{GPU: name, UUID: g.UUID, At: time.Now()}
	for _, s := range gpu.Signals() {
		if condition, has := c.conditions[s]; has {
			checkup.Conditions = append(checkup.Conditions, condition)
		}
	}
	return checkup, nil
}

func (m *machine) ChangedSince(at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changing || m.changed.After(at)
}

func (m *machine) Present(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cards[name] != nil
}

// change changes the machine under the running monitor.
func (m *machine) change(f func(*machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// gpu returns the name of a GPU.
func (m *machine) gpu(index int) string { return m.node.GPUs[index].Name() }

// setCondition sets the condition of a signal in the checks of a GPU.
func (m *machine) setCondition(index int, s gpu.Signal, present bool) {
	m.change(func(m *machine) { m.cards[m.gpu(index)].conditions[s] = gpu.Condition{Signal: s, Present: present} })
}

// xid sends an XID of a GPU, if a WatchEvents call is running.
func (m *machine) xid(index, number int, of ...gpu.Placement) {
	m.mu.Lock()
	report, name := m.report, m.gpu(index)
	m.mu.Unlock()
	e := gpu.Event{GPU: name, XID: number, At: time.Now()}
	if len(of) > 0 {
		e.Placement = of[0]
	}
	if report != nil {
		report(e)
	}
}

// leave takes the driver away, back brings it back, and the inventory has opened it.
func (m *machine) leave() {
	m.change(func(m *machine) {
		m.away = true
		close(m.connected)
	})
}

func (m *machine) back() {
	m.change(func(m *machine) {
		m.away = false
		m.connected = make(chan struct{})
		close(m.outdated)
		m.outdated = make(chan struct{})
	})
}

// disk is a store as the disk is: what is read is a copy of what was written.
type disk struct {
	mu   sync.Mutex
	data []byte
	// fail, when set, is the answer to every write and read; hung, when set, is waited for.
	fail   error
	hung   chan struct{}
	saves  int
	before func()
}

func (d *disk) LoadHealth() (gpu.Health, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return gpu.Health{}, d.fail
	}
	return d.read()
}

func (d *disk) read() (gpu.Health, error) {
	var h gpu.Health
	if d.data == nil {
		return h, nil
	}
	return h, json.Unmarshal(d.data, &h)
}

func (d *disk) SaveHealth(h gpu.Health, leads func() bool) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.saves++
	if d.before != nil {
		d.before()
	}
	if hung := d.hung; hung != nil {
		d.mu.Unlock()
		<-hung
		d.mu.Lock()
	}
	if d.fail != nil {
		return false, d.fail
	}
	if !leads() {
		return false, nil
	}
	data, err := json.Marshal(h)
	d.data = data
	return err == nil, err
}

// has returns what is on the disk.
func (d *disk) has(t *testing.T) gpu.Health {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	h, err := d.read()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (d *disk) behave(f func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// stage is a monitor that runs in a bubble, with what surrounds it.
type stage struct {
	*machine
	disk *disk
	boot string
	// follows is true while another agent leads.
	follows bool
	rules   gpu.Rules
	monitor *Monitor
	stop    func()

	reportMu sync.Mutex
	// reported has the faults of the last report, reports counts the calls, detected has the reported detection times.
	reported []gpu.Fault
	reports  int
	detected []time.Duration
	// unsafe permits reports of faults that are not saved.
	unsafe bool
}

// perform runs the test in a bubble whose clock it moves with pass.
func perform(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{machine: newMachine(t), disk: &disk{}, boot: "boot-1"}
		s.run(t)
		defer func() { s.stop() }()
		test(t, s)
	})
}

// run starts a monitor, as an agent does.
func (s *stage) run(t *testing.T) {
	t.Helper()
	var err error
	s.monitor, err = New(t.Context(), Config{
		Hardware: s.machine, Store: s.disk, Records: s.machine, Inventory: s.machine, Rules: s.rules, Boot: s.boot,
		Leads: func() bool { return !s.following() }, Report: s.recordReport,
		Detected: func(took time.Duration) {
			s.reportMu.Lock()
			defer s.reportMu.Unlock()
			s.detected = append(s.detected, took)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.monitor.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	s.stop = func() {
		cancel()
		done.Wait()
		synctest.Wait()
	}
}

// kill ends the monitor as SIGKILL does: nothing of it comes to the disk any more. It is to be called while the monitor is at rest.
func (s *stage) kill() {
	s.disk.behave(func(d *disk) { d.fail = errors.New("the process is dead") })
	s.stop()
	s.disk.behave(func(d *disk) { d.fail = nil })
	s.reportMu.Lock()
	defer s.reportMu.Unlock()
	s.reported = nil
}

func (s *stage) following() bool {
	s.reportMu.Lock()
	defer s.reportMu.Unlock()
	return s.follows
}

func (s *stage) follow(follows bool) {
	s.reportMu.Lock()
	defer s.reportMu.Unlock()
	s.follows = follows
}

// recordReport is Config.Report. Reported faults must have been saved before.
func (s *stage) recordReport(faults []gpu.Fault) {
	s.reportMu.Lock()
	defer s.reportMu.Unlock()
	s.reported = faults
	s.reports++
	if s.follows || s.unsafe {
		return
	}
	h := s.disk.has(s.t)
	for _, f := range faults {
		saved := func(g gpu.Fault) bool {
			return g.GPU == f.GPU && g.Placement == f.Placement && g.Signal == f.Signal && g.XID == f.XID && g.InEffect() && g.Severity == f.Severity
		}
		if !slices.ContainsFunc(h.Faults, saved) {
			s.t.Errorf("%v of %s is reported and not saved: %v", f, f.GPU, h.Faults)
		}
	}
}

// allow permits reports of faults that are not saved from now on.
func (s *stage) allow() {
	s.reportMu.Lock()
	defer s.reportMu.Unlock()
	s.unsafe = true
}

// count reads a number that others change.
func (s *stage) count(number *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reportMu.Lock()
	defer s.reportMu.Unlock()
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	return *number
}

// times returns how long detections took.
func (s *stage) times() []time.Duration {
	s.reportMu.Lock()
	defer s.reportMu.Unlock()
	return slices.Clone(s.detected)
}

// reportedFaults returns the faults of the last report: GPU index, fault and severity, the worst first.
func (s *stage) reportedFaults() []string {
	s.reportMu.Lock()
	defer s.reportMu.Unlock()
	found := []string{}
	for _, f := range s.reported {
		index := slices.IndexFunc(s.node.GPUs, func(g gpu.GPU) bool { return g.Name() == f.GPU })
		text := fmt.Sprintf("%d %v %v", index, f, f.Severity)
		if f.Placement != (gpu.Placement{}) {
			text += fmt.Sprintf(" at %d", f.Placement.Start)
		}
		found = append(found, text)
	}
	return found
}

// expect checks the last report.
func (s *stage) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := s.reportedFaults(); !slices.Equal(got, want) {
		t.Errorf("%s: reported %q, want %q", when, got, want)
	}
}

// known returns the monitor's fault of an XID.
func (s *stage) known(t *testing.T, xid int) gpu.Fault {
	t.Helper()
	for _, f := range s.monitor.Faults() {
		if f.XID == xid {
			return f
		}
	}
	t.Fatalf("no fault of XID %d: %v", xid, s.monitor.Faults())
	return gpu.Fault{}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
