package health

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

func TestXID(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(500 * time.Millisecond)
		s.expect(t, "a healthy node")
		s.xid(0, 79)
		synctest.Wait()
		s.expect(t, "at once", "0 XID 79 Fatal")
		s.xid(1, 94, gpu.Placement{Profile: 19, Start: 3, Size: 1})
		synctest.Wait()
		s.expect(t, "of a MIG device", "0 XID 79 Fatal", "1 XID 94 Critical at 3")
		if f := s.known(t, 79); f.UUID != s.node.GPUs[0].UUID || f.Boot != "boot-1" || f.Count != 1 {
			t.Errorf("remembered %+v, want the GPU's UUID and the boot", f)
		}
		if len(s.times()) != 2 || s.times()[0] > 100*time.Millisecond {
			t.Errorf("detected after %v, want two times, of nearly nothing", s.times())
		}
		pass(time.Hour)
		if s.reportedFaults()[0] != "0 XID 79 Fatal" {
			t.Errorf("an hour later: %q, want it to stay", s.reportedFaults())
		}
	})
}

func TestConditions(t *testing.T) {
	for _, signal := range gpu.Signals() {
		if signal == gpu.SignalXID || signal == gpu.SignalLost || signal == gpu.SignalDriver || signal == gpu.SignalNVLink {
			continue
		}
		t.Run(string(signal), func(t *testing.T) {
			perform(t, func(t *testing.T, s *stage) {
				pass(1500 * time.Millisecond)
				s.setCondition(1, signal, true)
				pass(time.Second)
				severity := gpu.Rules{}.Judge(signal, 0).Severity
				s.expect(t, "a second later", fmt.Sprintf("1 %s %v", signal, severity))
				if len(s.times()) != 1 || s.times()[0] > time.Second {
					t.Errorf("detected after %v, want one time", s.times())
				}
				reports, saves := s.count(&s.reports), s.count(&s.disk.saves)
				pass(time.Hour)
				if s.count(&s.reports) != reports || s.count(&s.disk.saves) != saves {
					t.Errorf("in an hour of the same: reported %d and saved %d times", s.count(&s.reports)-reports, s.count(&s.disk.saves)-saves)
				}
			})
		})
	}
}

func TestLinks(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		links := func(up int) {
			s.change(func(m *machine) {
				m.cards[m.gpu(0)].conditions[gpu.SignalNVLink] = gpu.Condition{Signal: gpu.SignalNVLink, Links: up}
			})
			pass(time.Second)
		}
		links(18)
		s.expect(t, "with all links")
		s.kill()
		s.run(t)
		links(17)
		s.expect(t, "when one went while no agent ran", "0 nvlink Critical")
	})
}

// What is known of a device only becomes worse, whatever comes first.
func TestWorstFaultIsReportedFirst(t *testing.T) {
	for _, order := range [][]int{{13, 79}, {79, 13}, {79, 94, 13}, {94, 13, 79}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			perform(t, func(t *testing.T, s *stage) {
				pass(100 * time.Millisecond)
				for _, xid := range order {
					s.xid(0, xid)
					pass(100 * time.Millisecond)
				}
				if got := s.reportedFaults(); got[0] != "0 XID 79 Fatal" {
					t.Errorf("reported %q, want XID 79 first", got)
				}
				pass(time.Minute)
				s.setCondition(0, gpu.SignalHeat, true)
				pass(time.Minute)
				if got := s.reportedFaults(); got[0] != "0 XID 79 Fatal" {
					t.Errorf("a minute later: reported %q, want XID 79 first", got)
				}
				if f := s.known(t, 13); f.Severity != gpu.Harmless {
					t.Errorf("XID 13 is %v", f.Severity)
				}
			})
		})
	}
}

// An agent that is killed at any moment begins with everything that was told, and tells it before it does anything else.
func TestKilled(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(time.Second)
		s.setCondition(1, gpu.SignalECC, true)
		s.xid(0, 79)
		s.xid(0, 13)
		pass(time.Second)
		s.kill()
		reports := s.count(&s.reports)
		var err error
		_, err = New(t.Context(), Config{
			Hardware: s.machine, Store: s.disk, Records: s.machine, Inventory: s.machine, Boot: s.boot, Leads: func() bool { return true }, Report: s.recordReport,
		})
		if err != nil || s.count(&s.reports) != reports+1 {
			t.Errorf("New: %v, reported %d times, want once", err, s.count(&s.reports)-reports)
		}
		s.expect(t, "by New", "0 XID 79 Fatal", "1 ecc Critical")
		s.run(t)
		pass(time.Minute)
		s.expect(t, "a minute later", "0 XID 79 Fatal", "1 ecc Critical")
	})
}

// Between saving and telling nothing is lost; between noticing and saving nothing was told.
func TestKilledBeforeReport(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(time.Second)
		hung := make(chan struct{})
		s.disk.behave(func(d *disk) { d.hung = hung })
		s.xid(0, 79)
		synctest.Wait()
		s.expect(t, "while it is being saved")
		reports := s.count(&s.reports)
		s.allow()
		close(hung)
		s.disk.behave(func(d *disk) { d.hung = nil })
		synctest.Wait()
		if s.count(&s.reports) != reports+1 || len(s.disk.has(t).InEffect()) != 1 {
			t.Errorf("when it is saved: reported %d times, saved %v", s.count(&s.reports)-reports, s.disk.has(t).InEffect())
		}
		s.kill()
		s.run(t)
		s.expect(t, "by the next agent", "0 XID 79 Fatal")
	})
}

func TestRecovery(t *testing.T) {
	mig := gpu.Placement{Profile: 19, Start: 3, Size: 1}
	tests := map[string]struct {
		begin func(s *stage)
		fault string
		// not is what does not prove that it is over, proof what does.
		not, proof func(s *stage)
	}{
		"of a condition that a reset ends": {
			begin: func(s *stage) { s.setCondition(0, gpu.SignalRemapPending, true) }, fault: "0 remap-pending Critical",
			not:   func(s *stage) { s.setCondition(0, gpu.SignalRemapPending, false) },
			proof: func(s *stage) { s.monitor.WasReset([]string{s.gpu(0)}, time.Now()) },
		},
		"of an XID that a reset ends": {
			begin: func(s *stage) { s.xid(0, 48) }, fault: "0 XID 48 Fatal",
			not:   func(s *stage) { s.monitor.WasReset([]string{s.gpu(1)}, time.Now()) },
			proof: func(s *stage) { s.monitor.WasReset([]string{s.gpu(0), s.gpu(1)}, time.Now()) },
		},
		"of one that only a GPU that answers proves": {
			begin: func(s *stage) { s.xid(0, 48) }, fault: "0 XID 48 Fatal",
			not: func(s *stage) {
				s.change(func(m *machine) { m.cards[m.gpu(0)].hung = make(chan struct{}) })
				pass(1500 * time.Millisecond)
				s.monitor.WasReset([]string{s.gpu(0)}, time.Now())
			},
			proof: func(s *stage) {
				s.change(func(m *machine) {
					close(m.cards[m.gpu(0)].hung)
					m.cards[m.gpu(0)].hung = nil
				})
			},
		},
		"of a program": {
			begin: func(s *stage) {
				s.change(func(m *machine) {
					m.held = []gpu.Device{{GPU: m.gpu(0), Use: gpu.Use{Shape: gpu.MIG, Placement: mig}}}
				})
				s.xid(0, 94, mig)
			},
			fault: "0 XID 94 Critical at 3",
			not:   func(s *stage) { s.monitor.WasReset([]string{s.gpu(1)}, time.Now()) },
			proof: func(s *stage) { s.change(func(m *machine) { m.held = nil }) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			perform(t, func(t *testing.T, s *stage) {
				pass(1500 * time.Millisecond)
				test.begin(s)
				pass(time.Second)
				s.expect(t, "at first", test.fault)
				test.not(s)
				pass(2 * time.Second)
				s.expect(t, "when it is not proven", test.fault)
				test.proof(s)
				pass(2 * time.Second)
				s.expect(t, "when it is proven")
				if f := s.monitor.Faults()[0]; f.InEffect() {
					t.Errorf("what is over is remembered as %+v", f)
				}
			})
		})
	}
}

// A reset is remembered when WasReset returns.
func TestResetAndKilled(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(500 * time.Millisecond)
		s.xid(0, 48)
		pass(time.Second)
		s.change(func(m *machine) { m.cards[m.gpu(0)].hung = make(chan struct{}) })
		s.monitor.WasReset([]string{s.gpu(0)}, time.Now())
		hung := s.cards[s.gpu(0)].hung
		s.kill()
		close(hung)
		s.change(func(m *machine) { m.cards[m.gpu(0)].hung = nil })
		synctest.Wait()
		s.run(t)
		pass(time.Second)
		s.expect(t, "after a look of the next agent")
	})
}

// A look that began before a reset says nothing of the GPU after it.
func TestCheckThatBeganBeforeReset(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(500 * time.Millisecond)
		hung := make(chan struct{})
		s.change(func(m *machine) { m.cards[m.gpu(0)].hung, m.cards[m.gpu(0)].lost = hung, true })
		pass(time.Second)
		s.change(func(m *machine) { m.cards[m.gpu(0)].hung = nil })
		s.monitor.WasReset([]string{s.gpu(0)}, time.Now())
		close(hung)
		synctest.Wait()
		s.expect(t, "after a look from before the reset that found it lost")
	})
}

func TestReboot(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(time.Second)
		s.xid(0, 79)                                   // reboot
		s.xid(0, 48)                                   // reset
		s.setCondition(1, gpu.SignalRemapFailed, true) // replace
		pass(1500 * time.Millisecond)
		s.kill()
		s.boot = "boot-2"
		s.change(func(m *machine) { m.cards[m.gpu(0)].lost = true })
		s.run(t)
		pass(10 * time.Second)
		s.expect(t, "in another boot, when the GPU does not answer", "0 XID 48 Fatal", "0 XID 79 Fatal", "1 remap-failed Fatal", "0 lost Critical")
		s.change(func(m *machine) { m.cards[m.gpu(0)].lost = false })
		pass(time.Second)
		s.expect(t, "when it answers", "1 remap-failed Fatal", "0 lost Critical")
		pass(6 * time.Minute)
		s.expect(t, "after a while", "1 remap-failed Fatal")
		s.change(func(m *machine) {
			m.node.GPUs = append([]gpu.GPU{}, m.node.GPUs...)
			m.node.GPUs[1].UUID = "GPU-another"
			delete(m.cards[m.gpu(1)].conditions, gpu.SignalRemapFailed)
		})
		pass(time.Second)
		s.expect(t, "when the other is replaced")
	})
}

// A GPU that was taken out while the node was off is forgotten; one that the driver does not know, or that goes in this boot, is not.
func TestRemovedGPU(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.xid(0, 79)
		s.xid(0, 13)
		s.setCondition(1, gpu.SignalRemapFailed, true)
		pass(1500 * time.Millisecond)
		name, cards, gpus := s.gpu(0), s.cards, s.node.GPUs
		takenOut := func(m *machine) {
			m.node.GPUs = gpus[1:]
			m.cards = map[string]*card{gpus[1].Name(): cards[gpus[1].Name()]}
		}
		expectFaults := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, f := range s.monitor.Faults() {
				if f.GPU == name {
					got = append(got, f.String())
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: remembered %v, want %v", when, got, want)
			}
		}
		s.change(takenOut)
		pass(2 * removalDelay)
		expectFaults("in the same boot", "XID 13", "XID 79")
		s.kill()
		s.boot = "boot-2"
		s.change(func(m *machine) { m.cards = cards })
		s.run(t)
		pass(2 * removalDelay)
		expectFaults("in another boot", "XID 13", "XID 79")
		s.change(takenOut)
		pass(removalDelay / 2)
		expectFaults("when it is away for a moment", "XID 13", "XID 79")
		s.change(func(m *machine) { m.cards = cards })
		pass(2 * time.Second)
		s.change(takenOut)
		pass(removalDelay / 2)
		expectFaults("and again", "XID 13", "XID 79")
		pass(removalDelay)
		expectFaults("when it is gone")
		if h := s.disk.has(t); len(h.Faults) != 1 || h.Faults[0].Signal != gpu.SignalRemapFailed {
			t.Errorf("on the disk is %v", h.Faults)
		}
	})
}

// What comes and goes stays told, and must stay away longer each time.
func TestFlapping(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		reports := s.count(&s.reports)
		for range 20 {
			s.setCondition(0, gpu.SignalHeat, true)
			pass(time.Minute)
			s.expect(t, "while it flaps", "0 heat Warning")
			s.setCondition(0, gpu.SignalHeat, false)
			pass(time.Minute)
			s.expect(t, "while it flaps", "0 heat Warning")
		}
		pass(50 * time.Minute)
		s.expect(t, "50 minutes later", "0 heat Warning")
		pass(15 * time.Minute)
		s.expect(t, "65 minutes later")
		if s.count(&s.reports)-reports > 50 {
			t.Errorf("reported %d times", s.count(&s.reports)-reports)
		}
	})
}

func TestLost(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.change(func(m *machine) { m.cards[m.gpu(1)].lost = true })
		pass(time.Second)
		s.expect(t, "a second later", "1 lost Critical")
		s.change(func(m *machine) { m.cards[m.gpu(1)].lost = false })
		pass(4 * time.Minute)
		s.expect(t, "when it is back", "1 lost Critical")
		pass(2 * time.Minute)
		s.expect(t, "when it was back for long")
	})
}

// One that hangs holds up neither the other nor events, and counts as lost.
func TestHang(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		hung := make(chan struct{})
		s.change(func(m *machine) { m.cards[m.gpu(0)].hung = hung })
		pass(2 * time.Second)
		s.expect(t, "a second into it")
		s.setCondition(1, gpu.SignalECC, true)
		s.xid(1, 48)
		pass(time.Second)
		s.expect(t, "of the other GPU", "1 XID 48 Fatal", "1 ecc Critical")
		pass(checkTimeout)
		s.expect(t, "when a look took too long", "1 XID 48 Fatal", "1 ecc Critical", "0 lost Critical")
		if looked := s.count(&s.cards[s.gpu(0)].looked); looked > 4 {
			t.Errorf("it was checked %d times", looked)
		}
		s.change(func(m *machine) { m.cards[m.gpu(0)].hung = nil })
		close(hung)
		pass(6 * time.Minute)
		s.expect(t, "when it answers for long", "1 XID 48 Fatal", "1 ecc Critical")
	})
}

// The driver of NVIDIA was seen to stall for more than 10 s in any call (DRA driver of NVIDIA, nvlib.go: "O(10 s)"). That is no fault.
func TestStallOfTwelveSeconds(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		for range 3 {
			pass(1500 * time.Millisecond)
			hung := make(chan struct{})
			s.change(func(m *machine) { m.cards[m.gpu(0)].hung = hung })
			pass(12 * time.Second)
			s.expect(t, "during a stall of 12 s")
			s.change(func(m *machine) { m.cards[m.gpu(0)].hung = nil })
			close(hung)
		}
		pass(time.Minute)
		s.expect(t, "after it")
	})
}

// A check that overlaps a change of MIG by this agent does not count, however long it takes; one that hangs after the change does.
func TestCheckDuringOwnChange(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		hung := make(chan struct{})
		s.change(func(m *machine) { m.cards[m.gpu(0)].hung, m.changing = hung, true })
		pass(3 * checkTimeout)
		s.expect(t, "while a MIG device is created")
		s.change(func(m *machine) { m.changing, m.changed = false, time.Now() })
		pass(checkTimeout - 2*time.Second)
		s.expect(t, "soon after it")
		pass(5 * time.Second)
		s.expect(t, "when the GPU hangs for as long without a change", "0 lost Critical")
		s.change(func(m *machine) { m.cards[m.gpu(0)].hung, m.cards[m.gpu(0)].lost, m.changed = nil, true, time.Now() })
		close(hung)
		pass(6 * time.Minute)
		s.expect(t, "when it stays lost", "0 lost Critical")
	})
}

// A check of a GPU in the middle of a change may fail in any way: only one that began afterwards counts.
func TestFailedCheckDuringOwnChange(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.change(func(m *machine) { m.cards[m.gpu(0)].lost, m.changing = true, true })
		pass(10 * time.Second)
		s.expect(t, "while the MIG mode changes")
		s.change(func(m *machine) { m.changing = false })
		pass(2 * time.Second)
		s.expect(t, "when it is lost afterwards", "0 lost Critical")
	})
}

// While the driver must not be queried, as when it is reopened or another GPU is reset, checks end with their context, and nothing follows;
// not even when the monitor comes to its tick late and the word of the look comes after it.
func TestConnectionClosedForReset(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.change(func(m *machine) { m.apart = 30 * time.Millisecond })
		begun := time.Now().Add(500 * time.Millisecond)
		for range int(silenceTimeout / (checkTimeout + s.monitor.config.Period)) {
			s.allow()
			pass(time.Until(begun.Add(checkTimeout - 100*time.Millisecond)))
			hung := make(chan struct{})
			s.disk.behave(func(d *disk) { d.hung = hung })
			s.xid(0, 48)
			pass(time.Until(begun.Add(checkTimeout + 10*time.Millisecond)))
			s.disk.behave(func(d *disk) { d.hung = nil })
			close(hung)
			pass(time.Second)
			s.expect(t, "while no GPU can be queried", "0 XID 48 Fatal")
			begun = begun.Add(checkTimeout + s.monitor.config.Period)
		}
		s.change(func(m *machine) { m.apart = 0 })
		pass(10*time.Second + checkTimeout)
		s.expect(t, "afterwards", "0 XID 48 Fatal")
	})
}

// A GPU over which the driver takes too long each time is lost, not well for ever; one that was slow once or twice is not.
func TestSlow(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		slow := func(is bool) { s.change(func(m *machine) { m.cards[m.gpu(0)].slow = is }) }
		pass(1500 * time.Millisecond)
		slow(true)
		pass(2 * (checkTimeout + s.monitor.config.Period))
		slow(false)
		pass(10 * time.Second)
		s.expect(t, "when it was slow twice")
		slow(true)
		pass((maxTimeouts + 1) * (checkTimeout + s.monitor.config.Period))
		s.expect(t, "when it stays slow", "0 lost Critical")
		reports := s.count(&s.reports)
		pass(time.Hour)
		s.expect(t, "for long", "0 lost Critical")
		if s.count(&s.reports) != reports {
			t.Errorf("reported %d more times", s.count(&s.reports)-reports)
		}
		slow(false)
		pass(6 * time.Minute)
		s.expect(t, "when it answers for long")
	})
}

// A driver that cannot be queried for longer than any operation takes is reported as away, and as back with its first response.
func TestSilence(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.change(func(m *machine) { m.apart = time.Millisecond })
		pass(silenceTimeout - 10*time.Second)
		s.expect(t, "for less")
		pass(15*time.Second + checkTimeout)
		s.expect(t, "for longer", "0 driver Critical", "1 driver Critical")
		s.change(func(m *machine) { m.apart = 0 })
		pass(checkTimeout + 2*s.monitor.config.Period)
		s.expect(t, "when it answers")
	})
}

func TestDriver(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.setCondition(0, gpu.SignalRemapPending, true)
		pass(time.Second)
		s.leave()
		pass(time.Second)
		s.expect(t, "without a driver", "0 remap-pending Critical", "0 driver Critical", "1 driver Critical")
		listens := s.count(&s.listens)
		pass(time.Minute)
		if s.count(&s.listens)-listens > 61 {
			t.Errorf("listened %d times in a minute without a driver", s.count(&s.listens)-listens)
		}
		s.back()
		synctest.Wait()
		s.xid(1, 48)
		pass(time.Second)
		s.expect(t, "a second after it came back", "1 XID 48 Fatal", "0 remap-pending Critical")
	})
}

// A listening that ends, as for another connection to the driver, begins again before anything else can be told.
func TestWatchRestartsImmediately(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.change(func(m *machine) {
			close(m.connected)
			m.connected = make(chan struct{})
		})
		synctest.Wait()
		s.xid(1, 48)
		synctest.Wait()
		s.expect(t, "of just then", "1 XID 48 Fatal")
	})
}

// A program that breaks for ever costs little, and every one of its errors is counted.
func TestManyEvents(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(time.Second)
		s.xid(0, 48)
		pass(time.Second)
		reports, saves := s.count(&s.reports), s.count(&s.disk.saves)
		const seconds, rate = 10, 1000
		for range seconds * rate {
			s.xid(0, 48)
			<-time.After(time.Second / rate)
		}
		s.xid(1, 79)
		pass(eventPause)
		s.expect(t, "at once, in a storm of another GPU", "0 XID 48 Fatal", "1 XID 79 Fatal")
		if f := s.known(t, 48); f.Count != 1+seconds*rate {
			t.Errorf("counted %d, want %d", f.Count, 1+seconds*rate)
		}
		if reports, saves := s.count(&s.reports)-reports, s.count(&s.disk.saves)-saves; reports > seconds+2 || saves > seconds/10+2 {
			t.Errorf("reported %d and saved %d times in %d s", reports, saves, seconds)
		}
		s.stop()
		s.run(t)
		if f := s.known(t, 48); f.Count != 1+seconds*rate {
			t.Errorf("after a stop %d are remembered, want %d", f.Count, 1+seconds*rate)
		}
	})
}

func TestDiskFails(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.allow()
		s.disk.behave(func(d *disk) { d.fail = errors.New("no space left on device") })
		saves := s.count(&s.disk.saves)
		s.xid(0, 79)
		synctest.Wait()
		s.expect(t, "at once, although it is not saved", "0 XID 79 Fatal")
		pass(time.Minute)
		if tried := s.count(&s.disk.saves) - saves; tried < 50 || tried > 70 {
			t.Errorf("tried %d times in a minute", tried)
		}
		s.disk.behave(func(d *disk) { d.fail = nil })
		pass(2 * time.Second)
		s.kill()
		s.run(t)
		s.expect(t, "when the disk has space again, and the agent was killed", "0 XID 79 Fatal")
	})
}

func TestDiskHangs(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.allow()
		hung := make(chan struct{})
		s.disk.behave(func(d *disk) { d.hung = hung })
		s.xid(0, 79)
		pass(saveTimeout)
		s.expect(t, "although the disk hangs", "0 XID 79 Fatal")
		s.xid(1, 48)
		pass(time.Second)
		s.expect(t, "while it hangs on", "0 XID 79 Fatal", "1 XID 48 Fatal")
		s.disk.behave(func(d *disk) { d.hung = nil })
		close(hung)
		pass(2 * time.Second)
		s.kill()
		s.run(t)
		s.expect(t, "when it answers again, and the agent was killed", "0 XID 79 Fatal", "1 XID 48 Fatal")
	})
}

// Nothing is written over what could not be read.
func TestDiskCannotBeRead(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(500 * time.Millisecond)
		s.xid(0, 79)
		pass(time.Second)
		s.disk.behave(func(d *disk) { d.fail = errors.New("input/output error") })
		s.stop()
		s.allow()
		s.run(t)
		synctest.Wait()
		s.xid(1, 48)
		pass(1500 * time.Millisecond)
		s.expect(t, "while nothing can be read", "1 XID 48 Fatal")
		s.disk.behave(func(d *disk) { d.fail = nil })
		pass(2 * time.Second)
		s.expect(t, "when it can be read", "0 XID 79 Fatal", "1 XID 48 Fatal")
	})
}

// An agent that does not lead saves nothing, and one that leads takes over what the other saved.
func TestLeads(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		pass(1500 * time.Millisecond)
		s.xid(0, 79)
		pass(time.Second)
		s.stop()
		s.follow(true)
		s.run(t)
		synctest.Wait()
		saves := s.count(&s.disk.saves)
		s.xid(1, 48)
		pass(10 * time.Second)
		s.expect(t, "not leading", "0 XID 79 Fatal", "1 XID 48 Fatal")
		if s.count(&s.disk.saves) != saves {
			t.Errorf("saved %d times while not leading", s.count(&s.disk.saves)-saves)
		}
		other := s.disk.has(t).Note(gpu.Rules{}, gpu.Event{GPU: s.gpu(1), XID: 95, At: time.Now()}, s.boot)
		s.another(t, other)
		s.follow(false)
		pass(2 * time.Second)
		s.expect(t, "leading", "0 XID 79 Fatal", "1 XID 48 Fatal", "1 XID 95 Fatal")
		if got := len(s.disk.has(t).InEffect()); got != 3 {
			t.Errorf("on the disk are %d faults, want 3", got)
		}
	})
}

// another agent saves.
func (s *stage) another(t *testing.T, h gpu.Health) {
	t.Helper()
	if saved, err := s.disk.SaveHealth(h, func() bool { return true }); err != nil || !saved {
		t.Fatalf("saved %t, %v", saved, err)
	}
}

// A write that hung in the disk while another agent came, saved and went replaces nothing, and what the other saved is taken in before the next.
func TestLeadLostWhileDiskHangs(t *testing.T) {
	for _, took := range []time.Duration{saveTimeout / 2, 5 * time.Second} {
		t.Run(took.String(), func(t *testing.T) {
			perform(t, func(t *testing.T, s *stage) {
				pass(1500 * time.Millisecond)
				s.allow()
				hung := make(chan struct{})
				s.disk.behave(func(d *disk) { d.hung = hung })
				s.xid(0, 79)
				pass(took)
				s.disk.behave(func(d *disk) { d.hung = nil })
				s.another(t, s.disk.has(t).Note(gpu.Rules{}, gpu.Event{GPU: s.gpu(1), XID: 95, At: time.Now()}, s.boot))
				s.follow(true)
				close(hung)
				synctest.Wait()
				if got := s.disk.has(t).InEffect(); len(got) != 1 || got[0].XID != 95 {
					t.Errorf("on the disk is %v, want what the other saved", got)
				}
				s.follow(false)
				pass(3 * time.Second)
				s.expect(t, "leading again", "0 XID 79 Fatal", "1 XID 95 Fatal")
				if got := len(s.disk.has(t).InEffect()); got != 2 {
					t.Errorf("on the disk are %d faults, want 2", got)
				}
			})
		})
	}
}

func TestNew(t *testing.T) {
	if _, err := New(t.Context(), Config{}); err == nil {
		t.Error("New without the id of the boot succeeded")
	}
}

// BenchmarkEvents is what an event costs in a storm; b.N of them are told as fast as it goes.
func BenchmarkEvents(b *testing.B) {
	h := newEventQueue()
	m := &Monitor{events: h, config: Config{Inventory: &machine{outdated: make(chan struct{})}, Boot: "boot"}}
	e := gpu.Event{GPU: "gpu-0000-3b-00-0", XID: 94, At: time.Now()}
	for n := range b.N {
		h.add(e)
		if n%20 == 19 { // at 1,000 per second they are taken in every 20 ms
			m.processEvents()
		}
	}
}
