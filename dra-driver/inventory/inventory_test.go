package inventory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// machine is a driver and the records of a node, which the test changes while the inventory runs.
type machine struct {
	mu        sync.Mutex
	driver    string
	node      gpu.Node
	held      []gpu.Device
	reopenErr error
	readErr   error
	heldErr   error
	// unreadable is set if a record cannot be read.
	unreadable bool
	// afterHeld is called once, after the records have been read.
	afterHeld func(*machine)
	reads     int
	reopens   int
	// hangs is set if a call in the driver blocks Reopen.
	hangs bool
}

func (m *machine) Driver() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.driver
}

func (m *machine) Reopen(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reopens++
	if m.hangs {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
		return ctx.Err()
	}
	if m.driver == "" {
		return gpu.ErrNoDriver
	}
	return m.reopenErr
}

func (m *machine) Read(context.Context) (gpu.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	node := m.node
	node.GPUs = slices.Clone(node.GPUs)
	return node, m.readErr
}

func (m *machine) Held() ([]gpu.Device, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held, err := slices.Clone(m.held), m.heldErr
	if m.afterHeld != nil {
		m.afterHeld(m)
		m.afterHeld = nil
	}
	return held, !m.unreadable, err
}

// change changes the machine under the running inventory.
func (m *machine) change(f func(*machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// pass advances the clock of the bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// start runs an inventory of the machine in a bubble whose clock the test controls.
func start(t *testing.T, m *machine, test func(t *testing.T, i *Inventory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		i := New(ctx, Config{Node: "node1", Hardware: m, Records: m})
		var done sync.WaitGroup
		done.Go(func() {
			if err := i.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		test(t, i)
		cancel()
		done.Wait()
	})
}

// h100s is a working machine with two H100.
func h100s(t *testing.T) *machine {
	t.Helper()
	node := gputest.Node(t, "h100x2")
	node.Name = ""
	return &machine{driver: "580", node: node}
}

// instance creates a MIG device of a 1g profile on a GPU of the machine.
func (m *machine) instance(index, start int) gpu.Instance {
	i := gpu.Instance{
		GPU: m.node.GPUs[index].Name(), Placement: gpu.Placement{Profile: 19, Start: start, Size: 1},
		GI: 7 + start, CI: 0, UUID: "MIG-" + string(rune('a'+start)), Multiprocessors: 16,
	}
	m.node.GPUs = slices.Clone(m.node.GPUs)
	g := &m.node.GPUs[index]
	g.Instances = append(slices.Clone(g.Instances), i)
	return i
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestReadsBeforeItRuns(t *testing.T) {
	m := h100s(t)
	got, known, _ := New(t.Context(), Config{Node: "node1", Hardware: m, Records: m}).Watch()
	want := gputest.Node(t, "h100x2")
	if diff := cmp.Diff(want.GPUs[1].UUID, got.GPUs[1].UUID); diff != "" || got.Name != "node1" || !known {
		t.Errorf("got node %q, known %t (-want +got):\n%s", got.Name, known, diff)
	}
}

func TestDriverAppearsDisappearsAndChanges(t *testing.T) {
	m := h100s(t)
	m.driver = ""
	start(t, m, func(t *testing.T, i *Inventory) {
		pass(time.Hour)
		node, known, outdated := i.Watch()
		if !known || len(node.GPUs) != 0 || isClosed(outdated) || m.reads != 0 {
			t.Fatalf("without a driver: known %t, %d GPUs, %d reads", known, len(node.GPUs), m.reads)
		}

		m.change(func(m *machine) { m.driver = "580" })
		pass(5 * time.Second)
		if node := i.Node(); len(node.GPUs) != 2 || node.GPUs[0].Lost || !isClosed(outdated) {
			t.Errorf("5 s after the driver came: %+v", node)
		}

		reopens := m.reopens
		m.change(func(m *machine) { m.driver, m.node.DriverVersion = "590", "590.48.01" })
		pass(5 * time.Second)
		if node := i.Node(); node.DriverVersion != "590.48.01" || m.reopens != reopens+1 {
			t.Errorf("5 s after the driver changed: version %s, opened %d times", node.DriverVersion, m.reopens-reopens)
		}

		m.change(func(m *machine) { m.driver = "" })
		pass(5 * time.Second)
		if node := i.Node(); len(node.GPUs) != 2 || !node.GPUs[0].Lost || !node.GPUs[1].Lost {
			t.Errorf("5 s after the driver went: want two lost GPUs, got %+v", node)
		}

		m.change(func(m *machine) { m.driver = "590" })
		pass(5 * time.Second)
		if node := i.Node(); node.GPUs[0].Lost {
			t.Error("5 s after the driver came back: GPU 0 is still lost")
		}
	})
}

// The library stays the same, but the kernel module changes.
func TestConnectionGoesStale(t *testing.T) {
	m := h100s(t)
	start(t, m, func(t *testing.T, i *Inventory) {
		m.change(func(m *machine) { m.readErr = errors.Join(errors.New("version mismatch"), gpu.ErrNoDriver) })
		pass(10 * time.Second)
		if !i.Node().GPUs[0].Lost {
			t.Error("while the connection is stale: GPU 0 is not lost")
		}
		m.change(func(m *machine) { m.readErr = nil })
		pass(2 * time.Second)
		if i.Node().GPUs[0].Lost {
			t.Error("2 s after it can be opened again: GPU 0 is still lost")
		}
	})
}

// A call that hangs in the old driver blocks the opening of the new one, and nothing else: the snapshot stays, and
// Reopen is retried until it succeeds.
func TestReopenHangs(t *testing.T) {
	m := h100s(t)
	start(t, m, func(t *testing.T, i *Inventory) {
		before := i.Node()
		m.change(func(m *machine) { m.driver, m.hangs = "590", true })
		pass(5 * time.Minute)
		if diff := cmp.Diff(before.GPUs[0].Lost, i.Node().GPUs[0].Lost); diff != "" {
			t.Errorf("lost while it hangs (-want +got):\n%s", diff)
		}
		reads := 0
		m.change(func(m *machine) {
			reads, m.hangs = m.reads, false
			if m.reopens < 10 {
				t.Errorf("tried %d times in 5 minutes", m.reopens)
			}
		})
		pass(reopenTimeout + 5*time.Second)
		m.change(func(m *machine) {
			if m.reads == reads {
				t.Error("the new driver is not read when nothing hangs any more")
			}
		})
	})
}

func TestErrorsKeepSnapshot(t *testing.T) {
	tests := map[string]func(*machine){
		"hardware": func(m *machine) { m.readErr = errors.New("unknown error") },
		"records":  func(m *machine) { m.heldErr = errors.New("input/output error") },
	}
	for name, fail := range tests {
		t.Run(name, func(t *testing.T) {
			m := h100s(t)
			start(t, m, func(t *testing.T, i *Inventory) {
				_, _, outdated := i.Watch()
				m.change(fail)
				m.change(func(m *machine) { m.node.GPUs = nil })
				pass(time.Minute)
				if node := i.Node(); len(node.GPUs) != 2 || isClosed(outdated) {
					t.Errorf("after a minute of errors: %d GPUs, changed %t", len(node.GPUs), isClosed(outdated))
				}
			})
		})
		t.Run(name+" at the start", func(t *testing.T) {
			m := h100s(t)
			fail(m)
			start(t, m, func(t *testing.T, i *Inventory) {
				if _, known, _ := i.Watch(); known {
					t.Error("nothing was read and yet the node is known")
				}
				m.change(func(m *machine) { m.readErr, m.heldErr = nil, nil })
				pass(10 * time.Second)
				if node, known, _ := i.Watch(); !known || len(node.GPUs) != 2 {
					t.Errorf("after the error: known %t, %d GPUs", known, len(node.GPUs))
				}
			})
		})
	}
	t.Run("opening at the start", func(t *testing.T) {
		m := h100s(t)
		m.reopenErr = errors.New("unknown error")
		start(t, m, func(t *testing.T, i *Inventory) {
			if _, known, _ := i.Watch(); known {
				t.Error("the driver could not be opened and yet the node is known")
			}
			m.change(func(m *machine) { m.reopenErr = nil })
			pass(2 * time.Second)
			if node, known, _ := i.Watch(); !known || len(node.GPUs) != 2 {
				t.Errorf("2 s after the error: known %t, %d GPUs", known, len(node.GPUs))
			}
		})
	})
}

func TestLostGPU(t *testing.T) {
	m := h100s(t)
	m.instance(1, 3)
	start(t, m, func(t *testing.T, i *Inventory) {
		want := i.Node().GPUs[1]
		want.Lost = true
		m.change(func(m *machine) { m.node.GPUs[1] = gpu.GPU{PCI: m.node.GPUs[1].PCI, Index: 1, Lost: true} })
		pass(10 * time.Second)
		got := i.Node().GPUs[1]
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *gpu.Geometry) bool { return a == b })); diff != "" {
			t.Errorf("a lost GPU is shown as it last was (-want +got):\n%s", diff)
		}
	})
}

func TestForeignInstance(t *testing.T) {
	m := h100s(t)
	start(t, m, func(t *testing.T, i *Inventory) {
		var ours, admins gpu.Instance
		m.change(func(m *machine) {
			ours = m.instance(0, 0)
			m.held = []gpu.Device{{GPU: ours.GPU, Use: gpu.Use{Shape: gpu.MIG, Placement: ours.Placement}}}
		})
		i.Refresh()
		synctest.Wait()
		if node := i.Node(); len(node.GPUs[0].Instances) != 1 || node.GPUs[0].Withheld != 0 || len(i.ForeignInstances()) != 0 {
			t.Errorf("our instance: %+v, unknown %v", node.GPUs[0], i.ForeignInstances())
		}

		m.change(func(m *machine) { admins = m.instance(0, 4) })
		pass(10 * time.Second)
		if got := i.Node().GPUs[0].Withheld; got != gpu.SpanMask(4, 1) {
			t.Errorf("with an instance of an administrator: slices %v are withheld", got)
		}
		if diff := cmp.Diff([]gpu.Instance{admins}, i.ForeignInstances()); diff != "" {
			t.Errorf("unknown (-want +got):\n%s", diff)
		}
		if i.Node().GPUs[1].Withheld != 0 {
			t.Error("the other GPU lost slices too")
		}

		m.change(func(m *machine) { m.unreadable = true })
		pass(10 * time.Second)
		if got := i.Node().GPUs[0].Withheld; got != 0 || len(i.ForeignInstances()) != 1 {
			t.Errorf("while a record cannot be read: slices %v are withheld, unknown %v: it may be a claim's", got, i.ForeignInstances())
		}
		m.change(func(m *machine) { m.unreadable = false })
		pass(10 * time.Second)

		_, _, outdated := i.Watch()
		pass(time.Hour)
		if isClosed(outdated) {
			t.Error("nothing changed in an hour and yet there is news")
		}

		m.change(func(m *machine) { m.node.GPUs[0].Instances = []gpu.Instance{ours} })
		pass(10 * time.Second)
		if i.Node().GPUs[0].Withheld != 0 || len(i.ForeignInstances()) != 0 {
			t.Errorf("after it went: slices %v are withheld, unknown %v", i.Node().GPUs[0].Withheld, i.ForeignInstances())
		}
	})
}

// A MIG device that is destroyed, with its record, between the two steps of a read is not foreign.
func TestReleasedWhileReading(t *testing.T) {
	m := h100s(t)
	start(t, m, func(t *testing.T, i *Inventory) {
		m.change(func(m *machine) {
			m.instance(0, 0)
			m.afterHeld = func(m *machine) { m.node.GPUs[0].Instances = nil }
		})
		_, _, outdated := i.Watch()
		i.Refresh()
		synctest.Wait()
		if isClosed(outdated) || len(i.ForeignInstances()) != 0 {
			t.Errorf("an instance of ours was taken for a stranger: %v", i.ForeignInstances())
		}
	})
}

func TestRefreshesAreMerged(t *testing.T) {
	m := h100s(t)
	start(t, m, func(t *testing.T, i *Inventory) {
		synctest.Wait()
		before := m.reads
		m.change(func(*machine) { // the hardware is in use
			for range 100 {
				i.Refresh()
			}
		})
		synctest.Wait()
		if got := m.reads - before; got < 1 || got > 2 {
			t.Errorf("100 refreshes read the hardware %d times", got)
		}
	})
}

func TestWithheld(t *testing.T) {
	g := gputest.Node(t, "h100x2").GPUs[0]
	at := func(profile, start, size int) gpu.Placement {
		return gpu.Placement{Profile: profile, Start: start, Size: size}
	}
	stranger := func(gpuName string, p gpu.Placement) gpu.Instance { return gpu.Instance{GPU: gpuName, Placement: p} }
	holds := func(gpuName string, u gpu.Use) gpu.Device { return gpu.Device{GPU: gpuName, Use: u} }
	mig := func(p gpu.Placement) gpu.Use { return gpu.Use{Shape: gpu.MIG, Placement: p} }
	tests := map[string]struct {
		strangers []gpu.Instance
		held      []gpu.Device
		want      gpu.Mask
	}{
		"nothing":                      {},
		"a stranger":                   {[]gpu.Instance{stranger(g.Name(), at(9, 4, 4))}, nil, gpu.SpanMask(4, 4)},
		"on another GPU":               {[]gpu.Instance{stranger("gpu-other", at(9, 4, 4))}, nil, 0},
		"a claim holds a slice of it":  {[]gpu.Instance{stranger(g.Name(), at(9, 4, 4))}, []gpu.Device{holds(g.Name(), mig(at(14, 4, 2)))}, gpu.SpanMask(6, 2)},
		"a claim holds the whole GPU":  {[]gpu.Instance{stranger(g.Name(), at(9, 4, 4))}, []gpu.Device{holds(g.Name(), gpu.Use{Shape: gpu.Whole})}, 0},
		"a claim holds another GPU":    {[]gpu.Instance{stranger(g.Name(), at(9, 4, 4))}, []gpu.Device{holds("gpu-other", gpu.Use{Shape: gpu.Whole})}, gpu.SpanMask(4, 4)},
		"a claim that only watches it": {[]gpu.Instance{stranger(g.Name(), at(9, 4, 4))}, []gpu.Device{holds(g.Name(), gpu.Use{Shape: gpu.Monitor})}, gpu.SpanMask(4, 4)},
		"a claim for a profile of another driver": {[]gpu.Instance{stranger(g.Name(), at(9, 4, 4))},
			[]gpu.Device{holds(g.Name(), mig(at(99, 4, 4)))}, gpu.SpanMask(4, 4)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (reading{held: test.held, all: true}).withheld(g, test.strangers); got != test.want {
				t.Errorf("got slices %v, want %v", got, test.want)
			}
		})
	}
}

// fault is a fault in effect.
func fault(gpuName string, s gpu.Severity, xid int) gpu.Fault {
	return gpu.Fault{GPU: gpuName, Signal: gpu.SignalXID, XID: xid, Severity: s, Since: time.Now(), Last: time.Now(), Count: 1}
}

// Faults are shown at once, also before Run, without a read of the hardware; only a difference is a change.
func TestDiagnose(t *testing.T) {
	m := h100s(t)
	start(t, m, func(t *testing.T, i *Inventory) {
		first, second := i.Node().GPUs[0].Name(), i.Node().GPUs[1].Name()
		warning, fatal := fault(first, gpu.Warning, 1), fault(first, gpu.Fatal, 79)
		over := fault(first, gpu.Fatal, 48)
		over.Over = time.Now()
		faults := []gpu.Fault{warning, over, fault(first, gpu.Harmless, 13), fatal, fault("gpu-elsewhere", gpu.Fatal, 79)}
		reads := m.reads
		_, _, outdated := i.Watch()
		i.Diagnose(faults)
		if !isClosed(outdated) || m.reads != reads {
			t.Errorf("after the diagnosis: notified %t, the hardware was read %d times", isClosed(outdated), m.reads-reads)
		}
		_, _, outdated = i.Watch()
		i.Diagnose(slices.Clone(faults))
		i.Hold(nil)
		i.Hold(map[string]string{})
		if isClosed(outdated) {
			t.Error("the same diagnosis again is news")
		}
		i.Hold(map[string]string{second: "is being reset"})
		if !isClosed(outdated) {
			t.Error("that a GPU is held is no news")
		}
		check := func(when string) {
			t.Helper()
			gpus := i.Node().GPUs
			for n, g := range gpus {
				gpus[n].Faults = slices.DeleteFunc(slices.Clone(g.Faults), func(f gpu.Fault) bool { return f.Signal == gpu.SignalDriver })
			}
			if diff := cmp.Diff([]gpu.Fault{fatal, warning}, gpus[0].Faults); diff != "" || len(gpus[1].Faults) != 0 {
				t.Errorf("%s: faults (-want +got):\n%s and of the other GPU %v", when, diff, gpus[1].Faults)
			}
			if gpus[0].Held != "" || gpus[1].Held != "is being reset" {
				t.Errorf("%s: held %q and %q", when, gpus[0].Held, gpus[1].Held)
			}
		}
		check("at once")
		m.change(func(m *machine) { m.node.GPUs[0] = gpu.GPU{PCI: m.node.GPUs[0].PCI, Lost: true} })
		pass(10 * time.Second)
		check("when the GPU is lost")
		m.change(func(m *machine) { m.readErr = errors.New("unknown error") })
		pass(10 * time.Second)
		check("when the hardware cannot be read")
		m.change(func(m *machine) { m.driver = "" })
		pass(10 * time.Second)
		check("without a driver")
		m.change(func(m *machine) { m.driver, m.readErr, m.node = "590", nil, h100s(t).node })
		pass(10 * time.Second)
		check("with another driver")

		i.Diagnose(nil)
		i.Hold(nil)
		if gpus := i.Node().GPUs; len(gpus[0].Faults) != 0 || gpus[1].Held != "" {
			t.Errorf("after all is well: faults %v, held %q", gpus[0].Faults, gpus[1].Held)
		}
	})
}

// While the driver is away, every GPU has the driver fault, from the first snapshot without the driver to the first one
// with it, whatever Diagnose reports.
func TestMissingDriverIsAFault(t *testing.T) {
	m := h100s(t)
	start(t, m, func(t *testing.T, i *Inventory) {
		expectSignals := func(when string, want ...gpu.Signal) {
			t.Helper()
			for _, g := range i.Node().GPUs {
				var got []gpu.Signal
				for _, f := range g.FaultsAffecting(gpu.Use{Shape: gpu.Whole}) {
					if f.Severity < gpu.Critical || f.Since.IsZero() {
						t.Errorf("%s: %+v", when, f)
					}
					got = append(got, f.Signal)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %s has %v, want %v", when, g.Name(), got, want)
				}
			}
		}
		var lost, away []gpu.Fault
		for _, g := range m.node.GPUs {
			f := gpu.Fault{GPU: g.Name(), Signal: gpu.SignalECC, Severity: gpu.Fatal, Since: time.Now()}
			lost = append(lost, f)
			f.Signal, f.Severity = gpu.SignalDriver, gpu.Critical
			away = append(away, f)
		}
		expectSignals("with the driver")
		m.change(func(m *machine) { m.driver = "" })
		pass(3 * time.Second)
		expectSignals("when it went", gpu.SignalDriver)
		_, _, outdated := i.Watch()
		pass(time.Minute)
		if isClosed(outdated) {
			t.Error("it is news again and again that the driver is away")
		}
		i.Diagnose(lost)
		expectSignals("with another fault", gpu.SignalECC, gpu.SignalDriver)
		i.Diagnose(away)
		expectSignals("when it was diagnosed", gpu.SignalDriver)
		i.Diagnose(nil)
		expectSignals("when it answers, and was not read yet", gpu.SignalDriver)
		m.change(func(m *machine) { m.driver = "580" })
		pass(3 * time.Second)
		expectSignals("when it is back")
	})
}

// A restarted agent applies the persisted faults before anything is published.
func TestDiagnoseBeforeRun(t *testing.T) {
	m := h100s(t)
	i := New(t.Context(), Config{Node: "node1", Hardware: m, Records: m})
	i.Diagnose([]gpu.Fault{fault(i.Node().GPUs[1].Name(), gpu.Fatal, 79)})
	if got := i.Node().GPUs[1].Faults; len(got) != 1 || got[0].XID != 79 {
		t.Errorf("got %v, want XID 79", got)
	}
}

// The overlay may be changed at any time, also while the hardware is read.
func TestDiagnoseWhileReading(t *testing.T) {
	m := h100s(t)
	start(t, m, func(t *testing.T, i *Inventory) {
		name := i.Node().GPUs[0].Name()
		var group sync.WaitGroup
		for n := range 4 {
			group.Go(func() {
				for xid := range 100 {
					i.Diagnose([]gpu.Fault{fault(name, gpu.Fatal, 1000*n+xid)})
					i.Hold(map[string]string{name: "reset"})
					i.Refresh()
				}
			})
		}
		group.Wait()
		i.Diagnose([]gpu.Fault{fault(name, gpu.Fatal, 79)})
		synctest.Wait()
		if g := i.Node().GPUs[0]; len(g.Faults) != 1 || g.Faults[0].XID != 79 || g.Held != "reset" {
			t.Errorf("got faults %v, held %q", g.Faults, g.Held)
		}
	})
}
