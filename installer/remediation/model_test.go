package remediation

import (
	"flag"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// full searches to the depth of the scenarios; otherwise at most one disturbance affects a GPU.
var full = flag.Bool("full", false, "search with the full number of disturbances of each scenario")

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the search keeps every state
	m.Run()
}

// faultedNode is a node with one faulted GPU in use.
func faultedNode(r gpu.Remedy, budget uint8) world {
	w := world{agent: true, reported: true, monitored: true, mode: v1alpha1.RemediationAct, rebooter: true, budget: budget}
	w.cards[0] = card{exists: true, remedy: r, seen: r != noFault, user: phase.PodReady, prepared: true}
	w.cards[1].remedy = noFault
	return w
}

// two is a node with two such GPUs.
func two(r gpu.Remedy, budget uint8) world {
	w := faultedNode(r, budget)
	w.cards[1] = w.cards[0]
	return w
}

func with(w world, change func(w *world, c *card)) world { change(&w, &w.cards[0]); return w }

// witnesses are the scenarios that fail when a rule is removed.
var witnesses = map[string]string{
	"order reset":            "well",
	"adopt":                  "a reset",
	"agent does not report":  "an agent that breaks",
	"agent holds":            "well",
	"request repair at once": "well",
	"withdraw request":       "no administrator reboots",
	"await repair":           "a reset that hangs",
	"begin to drain":         "well",
	"begin":                  "well",
	"beyond a reset":         "a reset",
	"budget":                 "two GPUs",
	"drain":                  "well",
	"end validation":         "a reset",
	"fault comes back":       "a fault that comes back",
	"fault is over":          "a reset that does not help",
	"halt":                   "a person stops it",
	"hold during request":    "a reset",
	"hold":                   "well",
	"make room":              "well",
	"keep":                   "policies change",
	"may not begin":          "a person stops it",
	"no reboot helps":        "no administrator reboots",
	"nothing to do":          "well",
	"order is gone":          "a reset",
	"order validate":         "well",
	"over by itself":         "a reset",
	"pods stay":              "a pod that stays",
	"programs have ended":    "programs must end",
	"reboot did not help":    "a reboot",
	"reboot is done":         "a reset that does not help",
	"recovered":              "well",
	"release":                "well",
	"reset failed":           "a reset that fails",
	"reset is next":          "well",
	"resets":                 "a reset that hangs",
	"rest":                   "programs must end",
	"suggest":                "policies change",
	"unknown":                "a reset",
	"validate is next":       "well",
	"validate":               "well",
	"wait for pods":          "pods that are waited for",
	"faults ended":           "well",
}

// deep are the scenarios that only a full search has time for.
func deep() []scenario {
	return []scenario{
		{"two GPUs and all events", two(gpu.Reset, 1), []string{
			"fault ends", "reboot", "replace", "pause", "off", "busy", "blocked", "node reboots", "agent goes", "lose status", "order is taken away", "stubborn", "bad proof",
		}, v1alpha1.OutcomeRecovered},
		{"another GPU is faulted", with(two(gpu.Reset, 1), func(w *world, _ *card) { w.cards[1].remedy, w.cards[1].seen = noFault, false }),
			[]string{"the other", "fault ends", "pause"}, v1alpha1.OutcomeRecovered},
	}
}

func scenarios() []scenario {
	const recovered = v1alpha1.OutcomeRecovered
	return []scenario{
		{"well", faultedNode(noFault, 2), []string{"wait", "restart", "reset", "reboot", "replace", "fault ends", "node reboots"}, ""},
		{"a reset", faultedNode(gpu.Reset, 1), []string{"fault ends", "reboot", "replace", "node reboots", "late pod", "lose status", "order is taken away", "agent goes"}, recovered},
		{"programs must end", faultedNode(gpu.Restart, 1), []string{"fault ends", "reset", "late pod", "blocked", "stubborn", "agent goes", "lose status", "node reboots"}, recovered},
		{"a person stops it", faultedNode(gpu.Reset, 2), []string{"pause"}, recovered},
		{"a maintenance comes between", faultedNode(gpu.Reset, 2), []string{"busy"}, recovered},
		{"policies change", faultedNode(gpu.Reset, 2), []string{"off", "suggest", "act"}, recovered},
		{"a reset that does not help", with(faultedNode(gpu.Reset, 1), func(_ *world, c *card) { c.stubborn = true }),
			[]string{"pause", "busy", "node reboots", "off", "agent goes", "fault ends", "lose status"}, recovered},
		{"a reset that fails", with(faultedNode(gpu.Reset, 1), func(_ *world, c *card) { c.badReset = true }), []string{"pause", "fault ends", "agent breaks", "busy", "lose status", "opens"}, recovered},
		{"a GPU that another process has open", with(faultedNode(gpu.Reset, 1), func(_ *world, c *card) { c.open = true }), []string{"pause", "fault ends", "agent breaks"}, v1alpha1.OutcomeFailed},
		{"a reset that hangs", with(faultedNode(gpu.Reset, 1), func(_ *world, c *card) { c.hangs = true }), []string{"pause", "agent breaks", "node reboots"}, recovered},
		{"a proof that fails", with(faultedNode(gpu.Reset, 1), func(_ *world, c *card) { c.badProof = true }),
			[]string{"pause", "off", "node reboots", "busy", "no validator", "order is taken away", "unplaced"}, ""},
		{"a proof that finds no place", with(faultedNode(gpu.Reset, 1), func(w *world, _ *card) { w.unplaced = true }), []string{"reset", "pause", "agent goes", "busy"}, recovered},
		{"a fault that comes back", faultedNode(gpu.Reset, 2), []string{"reset", "wait"}, recovered},
		{"a reboot", faultedNode(gpu.Reboot, 2), []string{"dead", "replace", "fault ends", "node reboots", "pause", "reboot", "lose status", "agent breaks", "reboots disabled"}, recovered},
		{"no administrator reboots", with(faultedNode(gpu.Reboot, 1), func(w *world, _ *card) { w.rebooter = false }), []string{"node reboots", "fault ends", "off", "replace", "reboots disabled"}, ""},
		{"no reboots", with(faultedNode(gpu.Reset, 1), func(w *world, c *card) { w.noReboot, c.stubborn = true, true }), []string{"fault ends", "node reboots", "pause"}, ""},
		{"dead", with(faultedNode(gpu.Reboot, 1), func(_ *world, c *card) { c.dead = true }), []string{"fault ends", "pause", "agent goes"}, ""},
		{"a pod that does not leave", with(faultedNode(gpu.Reset, 1), func(w *world, _ *card) { w.blocked = true }), []string{"blocked", "fault ends", "pause", "agent goes"}, ""},
		{"a pod that stays", with(faultedNode(gpu.Reset, 2), func(w *world, _ *card) { w.stays = true }), []string{"stays", "fault ends", "pause", "restart", "agent goes"}, ""},
		{"pods that are waited for", with(faultedNode(gpu.Reset, 1), func(w *world, _ *card) { w.waited = true }), []string{"pause", "fault ends"}, recovered},
		{"an agent that breaks", faultedNode(gpu.Reset, 2), []string{"agent breaks", "pause"}, recovered},
		{"two GPUs", with(two(gpu.Reset, 0), func(w *world, _ *card) { w.cards[1].user, w.cards[1].prepared = phase.PodAbsent, false }), nil, recovered},
		{"two GPUs and pods that do not leave", with(two(gpu.Reset, 0), func(w *world, _ *card) { w.blocked = true }), nil, ""},
		{"two GPUs, one for a person", with(two(gpu.Reset, 1), func(w *world, c *card) { c.remedy, w.rebooter = gpu.Replace, false }), []string{"fault ends"}, ""},
		{"two GPUs, one that fails its proof", with(two(gpu.Reset, 0), func(w *world, c *card) { c.badProof, w.rebooter = true, false }), nil, ""},
		{"suggest", with(faultedNode(gpu.Reset, 2), func(w *world, _ *card) { w.mode = v1alpha1.RemediationSuggest }), []string{"act", "off", "fault ends", "reboot"}, ""},
	}
}

// TestModel visits every reachable state of a GPU and its environment in each scenario, with a crash after every action. In each state no invariant
// is violated, and a fair environment leads to a GPU in service or to a correct report of what is awaited.
func TestModel(t *testing.T) {
	var total atomic.Int64
	all := scenarios()
	if *full {
		all = append(all, deep()...)
	}
	t.Cleanup(func() {
		t.Logf("%d states visited in %d scenarios, %d invariants, %d rules", total.Load(), len(all), len(invariants), len(ordered))
	})
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			if !*full {
				sc.start.budget = min(1, sc.start.budget)
			}
			s := search{scenario: sc, table: ordered}
			if f := s.run(); f != nil {
				t.Fatal(f)
			}
			t.Logf("%d states", s.Len())
			total.Add(int64(s.Len()))
		})
	}
}

// TestEveryRuleCounts removes one rule at a time: the model must fail with at most one disturbance, otherwise the rule is redundant. The first
// failing scenario is recorded, so that only that one is searched.
func TestEveryRuleCounts(t *testing.T) {
	for i, r := range ordered {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			all := scenarios()
			if w, named := witnesses[r.name]; named && !*full {
				all = slices.DeleteFunc(all, func(sc scenario) bool { return sc.name != w })
			}
			table := slices.Delete(slices.Clone(ordered), i, i+1)
			for _, sc := range all {
				sc.start.budget = min(1, sc.start.budget)
				s := search{scenario: sc, table: table}
				if f := s.run(); f != nil {
					t.Logf("%q: %q, // %s", r.name, sc.name, f.What)
					return
				}
			}
			t.Errorf("nothing is lost without %q in %d scenarios", r.name, len(all))
		})
	}
}
