package phase

import (
	"sync/atomic"
	"testing"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// bare is a node without operands, serving one that is Ready with driver 1.
func bare(budget uint8) world { return world{wanted: 1, ready: true, cdi: true, budget: budget} }

func serving(budget uint8) world {
	return world{
		wanted: 1, spec: 1, lastGood: 1, ready: true, cdi: true, known: true, surveyed: true, budget: budget,
		labelDriver: 1, labelAgent: true, labelReady: true, driver: PodReady, driverDigest: 1, agent: PodReady, loaded: 1,
		proven: true, provenDriver: 1, phase: v1alpha1.PhaseReady, reason: ReasonInService,
		reported: true, reportedUID: true, reportedAccepted: true, reportedDriver: true,
	}
}

func with(w world, change func(*world)) world { change(&w); return w }

func scenarios() []scenario {
	upgrade := func(budget uint8) world { return with(serving(budget), func(w *world) { w.wanted = 2 }) }
	busy := func(budget uint8) world {
		return with(upgrade(budget), func(w *world) { w.user, w.prepared = PodReady, true })
	}
	return []scenario{
		{"host driver too old", with(bare(1), func(w *world) { w.host, w.wanted = 2, 0 }), []string{"reboot"}, false},
		{"host driver refused", with(bare(1), func(w *world) { w.host, w.wanted, w.refuse = 1, 0, true }), []string{"reboot"}, false},
		{"old kubelet", with(bare(1), func(w *world) { w.oldKubelet = true }), []string{"kubelet", "opt out", "reboot"}, false},
		{"no driver", with(bare(1), func(w *world) { w.noDriver, w.wanted = true, 0 }), []string{"opt out", "reboot"}, false},
		{"host driver", with(bare(1), func(w *world) { w.host, w.wanted = 1, 0 }), []string{"reboot", "opt out", "plugin", "node goes"}, true},
		{"driver switched off for the host's", with(serving(1), func(w *world) { w.host = 1 }), []string{"driver off", "reboot"}, true},
		{"a GPUNode that is lost", with(busy(2), func(w *world) { w.wanted = 1 }),
			[]string{"lose GPUNode", "lose status", "reboot", "delete driver", "edit to 2", "cordon", "opt out"}, true},
		{"a GPUNode and its driver that are lost", with(busy(2), func(w *world) { w.wanted, w.setGone = 1, true }), []string{"lose GPUNode", "delete driver", "reboot"}, true},
		{"a GPUNode that is lost in an upgrade", busy(1), []string{"lose GPUNode"}, true},
		{"opting out", with(busy(2), func(w *world) { w.wanted = 1 }), []string{"opt out", "opt in", "unreadable", "reboot", "agent breaks", "edit to 2", "node goes"}, true},
		{"MIG mode", with(busy(1), func(w *world) { w.wanted, w.wantedMIG = 1, true }), []string{"lose GPUNode", "bad mode", "void mode", "reboot", "edit to 2", "delete operation", "user comes", "budget", "opt out"}, true},
		{"MIG mode of a host's driver", with(busy(1), func(w *world) {
			w.host, w.wanted, w.spec, w.lastGood, w.labelDriver, w.driver, w.driverDigest, w.loaded = 1, 0, 9, 9, 0, PodAbsent, 0, 0
			w.provenDriver, w.wantedMIG = 0, true
		}), []string{"bad mode", "lose GPUNode", "pause"}, true},
		{"bare with a runtime to configure", with(bare(1), func(w *world) { w.cdi = false }), []string{"reboot", "opt out", "delete agent"}, true},
		{"upgrade with an agent that breaks", upgrade(2), []string{"agent breaks", "bad agent", "bad driver 2"}, true},
		{"people in the way", upgrade(2), []string{"cordon", "not ready", "edit to 3", "edit to 1", "pause", "plugin", "conflict"}, true},
		{"driver switched off", with(serving(2), func(w *world) { w.user, w.prepared = PodReady, true }), []string{"driver off", "driver on", "reboot", "cordon"}, true},
		{"virtual machines", with(bare(2), func(w *world) { w.sandbox, w.wanted = true, 0 }), []string{"reboot", "user comes", "opt out"}, true},
		{"in service", serving(2), []string{"reboot", "delete agent", "agent refused", "delete driver", "bad agent", "user comes", "plugin", "conflict", "cordon", "agent off", "agent on"}, true},
		{"pods in the way", busy(2), []string{"budget", "unreadable", "waited", "user comes", "edit to 1"}, true},
		{"MIG mode and driver", with(upgrade(1), func(w *world) { w.wantedMIG = true }), []string{"bad mode", "bad driver 2", "reboot", "cordon"}, true},
		{"upgrade that fails its proof", with(upgrade(1), func(w *world) { w.badCheck = true }), []string{"bad check", "user comes", "edit to 3", "reboot"}, false},
		{"bare", bare(2), []string{"reboot", "bad driver 1", "bad agent", "bad check", "delete agent", "plugin", "conflict", "opt out", "cordon", "not ready"}, true},
		{"a driver that cannot start under load", with(busy(2), func(w *world) { w.wanted, w.reloads, w.driverUID = 1, true, 1 }),
			[]string{"delete driver", "budget", "pause", "cordon", "reboot", "user goes", "user comes", "edit to 2"}, true},
		{"a driver that failed under load", with(busy(1), func(w *world) {
			w.wanted, w.reloads, w.driverUID, w.driver, w.driverInUse, w.phase = 1, true, 1, PodFailed, true, v1alpha1.PhaseFailed
		}), []string{"budget", "pause", "reboot", "agent breaks"}, true},
		{"another kernel", with(busy(2), func(w *world) { w.wanted, w.kernel = 1, 1 }), []string{"new kernel", "bad driver 2", "reboot", "pause", "cordon", "delete agent"}, true},
		{"a GPU is reset", with(busy(2), func(w *world) { w.wanted, w.user, w.prepared = 1, PodAbsent, false }),
			[]string{"reset a GPU", "delete agent", "lose status", "reboot", "edit to 2", "opt out", "agent off"}, true},
		{"a GPU is reset in an upgrade", upgrade(1), []string{"reset a GPU"}, true},
		{"upgrade", busy(1), []string{"reboot", "user comes", "user goes", "delete agent", "delete driver", "agent breaks"}, true},
		{"upgrade to a bad driver", with(busy(1), func(w *world) { w.badDriver = 2 }), []string{"reboot", "user comes", "bad driver 1", "edit to 3", "edit to 1", "bad driver 2"}, false},
	}
}

// TestModel visits every reachable state of a node and its environment in each scenario, with a crash after every action. In each state no invariant
// is violated, and a fair environment leads to the expected final state.
func TestModel(t *testing.T) {
	var total atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d states visited in %d scenarios, %d invariants", total.Load(), len(scenarios()), len(invariants))
	})
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			s := search{scenario: sc, table: ordered}
			if f := s.run(); f != nil {
				t.Fatal(f)
			}
			t.Logf("%d states", s.Len())
			total.Add(int64(s.Len()))
		})
	}
}
