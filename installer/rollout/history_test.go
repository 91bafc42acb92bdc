package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// history simulates a fleet: nodes change, fail, disappear and return, as the rollout permits.
type history struct {
	Fleet
	bad     map[string]bool // nodes on which the new driver fails
	blocked map[string]bool // nodes whose pods do not terminate
	host    map[string]bool // nodes that keep their host's driver
	kernel  map[string]int  // how often a node has booted into another kernel, which needs another image
}

var monday = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func newHistory(policy v1alpha1.UpgradePolicy, nodes int) *history {
	h := &history{
		Fleet: Fleet{Now: monday, Policy: policy.Complete()},
		bad:   map[string]bool{}, blocked: map[string]bool{}, host: map[string]bool{}, kernel: map[string]int{},
	}
	for i := range nodes {
		h.Nodes = append(h.Nodes, Node{
			Name: fmt.Sprintf("n%02d", i), Wanted: "old", Current: "old", LastGood: "old", Phase: v1alpha1.PhaseReady, Since: monday.Add(-time.Hour), Available: true,
		})
	}
	return h
}

// want sets another driver as the target of all nodes, except those that keep their host's driver. Nodes with odd numbers have another kernel.
func (h *history) want(version string) {
	for i := range h.Nodes {
		if h.host[h.Nodes[i].Name] {
			continue
		}
		h.Nodes[i].Wanted = fmt.Sprintf("%s-%d", version, i%2)
		if boots := h.kernel[h.Nodes[i].Name]; boots > 0 {
			h.Nodes[i].Wanted += fmt.Sprintf("-k%d", boots)
		}
	}
}

// bootKernel boots a node in service into another kernel: its precompiled driver fails, and it needs that of the new kernel.
func (h *history) bootKernel(n *Node) {
	if n.New || h.host[n.Name] || n.Changing || n.Current != n.LastGood || n.Phase == v1alpha1.PhaseUpgrading || n.Phase == v1alpha1.PhaseFailed {
		return
	}
	h.kernel[n.Name]++
	n.Wanted = fmt.Sprintf("%s-k%d", strings.Split(n.Wanted, "-k")[0], h.kernel[n.Name])
	n.Down = true
	h.enter(n, v1alpha1.PhaseFailed)
}

// keepHost makes a node keep its host's driver, in service.
func (h *history) keepHost(n *Node) {
	h.host[n.Name], n.Wanted, n.Current, n.LastGood = true, "", "", ""
}

func (h *history) turn() Decision {
	d := Next(h.Fleet)
	h.Status = d.Status
	for _, name := range d.Grant {
		n := h.node(name)
		n.Current, n.Change, n.Changing, n.Unseen = n.Wanted, false, n.Change || n.Changing, true
	}
	for _, name := range d.Restart {
		n := h.node(name)
		n.Current, n.Unseen = n.Wanted, true
	}
	return d
}

func (h *history) node(name string) *Node {
	i := slices.IndexFunc(h.Nodes, func(n Node) bool { return n.Name == name })
	return &h.Nodes[i]
}

func (h *history) pass(d time.Duration) { h.Now = h.Now.Add(d) }

func (h *history) enter(n *Node, phase v1alpha1.NodePhase) {
	if n.Phase != phase {
		n.Phase, n.Since = phase, h.Now
	}
}

// live performs one step of what a node has been granted.
func (h *history) live(n *Node) {
	changing := n.Current != n.LastGood || n.Changing
	granted := n.Unseen
	n.Unseen = false
	switch {
	case n.Down && !granted: // its driver does not start, and there is none to roll back to
	case n.Down:
		n.Down = false
		h.enter(n, v1alpha1.PhaseDriverInstalling)
	case n.Phase == v1alpha1.PhaseDriverInstalling && h.bad[n.Name]:
		n.Down = true
		h.enter(n, v1alpha1.PhaseFailed)
	case n.Phase == v1alpha1.PhaseDriverInstalling:
		n.LastGood, n.Attempt = n.Current, nil
		h.enter(n, v1alpha1.PhaseReady)
	case n.Phase == v1alpha1.PhaseUpgrading && !changing:
		h.settle(n)
	case n.Phase == v1alpha1.PhaseUpgrading && (h.bad[n.Name] || h.blocked[n.Name]):
		h.fail(n)
	case n.Phase == v1alpha1.PhaseUpgrading:
		n.LastGood, n.Changing, n.Attempt = n.Current, false, nil
		h.enter(n, v1alpha1.PhaseReady)
	case n.New && n.Current == n.Wanted:
		n.LastGood, n.New, n.Changing = n.Current, false, false
		h.enter(n, v1alpha1.PhaseReady)
	case changing && n.Available:
		h.enter(n, v1alpha1.PhaseUpgrading)
	case changing:
		n.Current, n.Change, n.Changing = n.LastGood, n.Change || n.Changing, false // it returns the grant
	}
}

func (h *history) fail(n *Node) {
	a := &v1alpha1.Attempt{Digest: n.Current, Count: 1, Reason: "DriverFailed", Last: metav1.NewTime(h.Now)}
	if h.blocked[n.Name] {
		a.Reason = v1alpha1.AttemptDrainBlocked
	}
	if n.Current == n.LastGood {
		a.Digest = migAttempt + "Enabled"
	}
	if n.Attempt != nil && n.Attempt.Digest == a.Digest {
		a.Count = n.Attempt.Count + 1
	}
	n.Attempt, n.Current, n.Change, n.Changing = a, n.LastGood, n.Change || n.Changing, false
}

func (h *history) settle(n *Node) {
	switch {
	case n.attempt() == nil:
		n.Attempt = nil
		h.enter(n, v1alpha1.PhaseReady)
	case n.Attempt.Undisturbed():
		h.enter(n, v1alpha1.PhaseBlocked)
	default:
		h.enter(n, v1alpha1.PhaseRolledBack)
	}
}

func (h *history) counts() (running, out, total int) {
	for i := range h.Nodes {
		n := &h.Nodes[i]
		if n.New {
			continue
		}
		total++
		if n.running() && !n.restarting() {
			running++
		}
		if !n.serves() {
			out++
		}
	}
	return running, out, total
}

func drawPolicy(t *rapid.T) v1alpha1.UpgradePolicy {
	either := func(label string, from ...intstr.IntOrString) *intstr.IntOrString {
		v := rapid.SampledFrom(from).Draw(t, label)
		return &v
	}
	p := v1alpha1.UpgradePolicy{
		Canary:         either("canary", intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("30%")),
		MaxUnavailable: either("maxUnavailable", intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("25%"), intstr.FromString("100%")),
		FailureBudget:  either("failureBudget", intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromString("50%")),
	}
	if rapid.IntRange(0, 3).Draw(t, "auto") == 0 {
		p.Auto = new(false)
	}
	parallel := rapid.Int32Range(0, 3).Draw(t, "maxParallel")
	p.MaxParallel = &parallel
	if rapid.Bool().Draw(t, "window") {
		p.Window = &v1alpha1.MaintenanceWindow{Start: "10:00", Duration: metav1.Duration{Duration: 4 * time.Hour}}
	}
	return p
}

// hold checks the invariants of every decision before it is applied.
func (h *history) hold(t *rapid.T, d Decision) {
	running, out, total := h.counts()
	parallel, may := int(*h.Policy.MaxParallel), share(h.Policy.MaxUnavailable, total)
	open, _, _ := window(h.Policy.Window, h.Now)
	for _, name := range d.Grant {
		n := h.node(name)
		if n.New || n.running() {
			continue
		}
		if n.serves() {
			if out++; out > may {
				t.Fatalf("%s begins though %d of %d nodes are out of service and %d may be", name, out-1, total, may)
			}
		}
		if running++; parallel > 0 && running > parallel {
			t.Fatalf("%s begins though %d nodes change and %d may", name, running-1, parallel)
		}
		switch {
		case !open:
			t.Fatalf("%s begins outside the window at %s", name, h.Now)
		case !n.Available || n.Skipped || h.Paused:
			t.Fatalf("%s begins: %+v", name, *n)
		case d.Status.Stage == v1alpha1.RolloutSoak || d.Status.Stage == v1alpha1.RolloutPaused:
			t.Fatalf("%s begins in stage %s", name, d.Status.Stage)
		case d.Status.Stage == v1alpha1.RolloutCanary && running > share(h.Policy.Canary, total):
			t.Fatalf("%s begins as a canary too many", name)
		}
	}
	h.holdDown(t, d, total)
}

// holdDown checks the invariants of nodes that serve no GPUs: only they restart, never more than their budget at the same time, and only a pause, the
// node itself, its attempts or the budget holds them.
func (h *history) holdDown(t *rapid.T, d Decision, total int) {
	budget, restarting := max(16, total/10), len(d.Restart)
	for i := range h.Nodes {
		if h.Nodes[i].restarting() {
			restarting++
		}
	}
	if len(d.Restart) > 0 && restarting > budget {
		t.Fatalf("%d nodes that are down install drivers, of a budget of %d", restarting, budget)
	}
	for i := range h.Nodes {
		n := &h.Nodes[i]
		restarts := slices.Contains(d.Restart, n.Name)
		if restarts && (!n.Down || n.serves() || h.Paused || n.Skipped || !n.Available || n.Wanted == n.Current) {
			t.Fatalf("%s restarts: %+v", n.Name, *n)
		}
		may := n.Down && n.needs() && n.Wanted != n.Current && n.Available && !n.Skipped && !h.Paused && !h.exhausted(n) && !h.rests(n).After(h.Now)
		if may && !restarts && restarting < budget {
			t.Fatalf("%s is down and is held: %v in %+v", n.Name, d.Waits, d.Status)
		}
	}
}

// accounted checks that every node is done, changing, or waits for a named reason.
func (h *history) accounted(t *rapid.T, d Decision) {
	for i := range h.Nodes {
		n := &h.Nodes[i]
		waits := slices.ContainsFunc(d.Waits, func(w Wait) bool { return w.Node == n.Name && w.Reason != "" })
		if n.needs() && !n.New && !n.running() && !waits && !slices.Contains(d.Grant, n.Name) && !slices.Contains(d.Restart, n.Name) {
			t.Fatalf("no reason for %s: %+v", n.Name, *n)
		}
		if !n.needs() && waits {
			t.Fatalf("%s waits for nothing", n.Name)
		}
	}
}

// TestHistories simulates random histories: no limit is ever exceeded, and in a final state without disturbances every node is done, has used all its
// attempts, is skipped, or waits for a named reason.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(drawPolicy(t), rapid.IntRange(1, 7).Draw(t, "nodes"))
		for i := range h.Nodes {
			h.bad[h.Nodes[i].Name] = rapid.IntRange(0, 3).Draw(t, "bad") == 0
			if rapid.IntRange(0, 3).Draw(t, "host") == 0 {
				h.keepHost(&h.Nodes[i])
			}
			h.Nodes[i].Pods = rapid.Int32Range(0, 3).Draw(t, "pods")
			h.Nodes[i].Clique = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "clique")
		}
		h.want("new")
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			h.disturb(t)
			d := Next(h.Fleet)
			h.hold(t, d)
			h.accounted(t, d)
			h.turn()
		}
		h.calm(t)
	})
}

func (h *history) disturb(t *rapid.T) {
	n := &h.Nodes[rapid.IntRange(0, len(h.Nodes)-1).Draw(t, "node")]
	switch rapid.IntRange(0, 15).Draw(t, "what") {
	case 0:
		n.Available = !n.Available
	case 1:
		n.Skipped = !n.Skipped
	case 2:
		h.Paused = !h.Paused
	case 3:
		h.blocked[n.Name] = !h.blocked[n.Name]
	case 4:
		h.want(rapid.SampledFrom([]string{"new", "newer", "old"}).Draw(t, "version"))
	case 5:
		h.pass(time.Duration(rapid.IntRange(1, 400).Draw(t, "minutes")) * time.Minute)
	case 6:
		n.LastGood, n.Current, n.New, n.Down, n.Phase = "", "", true, false, v1alpha1.PhasePreflight
	case 7:
		n.Change = true // another MIG mode
	case 8, 9:
		h.bootKernel(n)
	default:
		h.live(n)
	}
}

// calm runs the fleet without disturbances until it settles.
func (h *history) calm(t *rapid.T) {
	h.Paused, h.blocked = false, map[string]bool{}
	if !*h.Policy.Auto {
		h.Resumed = "true"
	}
	for i := range h.Nodes {
		h.Nodes[i].Available, h.Nodes[i].Skipped = true, false
	}
	var d Decision
	for range 400 {
		for i := range h.Nodes {
			h.live(&h.Nodes[i])
		}
		d = Next(h.Fleet)
		h.hold(t, d)
		d = h.turn()
		h.pass(max(time.Minute, d.After))
	}
	if d.Status != nil && d.Status.Stage == v1alpha1.RolloutPaused {
		if failed := d.Status.Failed; int(failed) <= share(h.Policy.FailureBudget, len(h.Nodes)) {
			t.Fatalf("%d failures pause it", failed)
		}
		return
	}
	lost := 0 // nodes for whose kernel there is no driver: as many nodes stay out of service
	for i := range h.Nodes {
		if n := &h.Nodes[i]; n.failed() && n.Down && !n.needs() {
			lost++
		}
	}
	if lost > 0 && lost >= share(h.Policy.MaxUnavailable, len(h.Nodes)) {
		return
	}
	for i := range h.Nodes {
		n := &h.Nodes[i]
		if ended := n.done() || n.failed() && h.exhausted(n) || n.failed() && n.Down && !n.needs(); !ended {
			t.Fatalf("%s is not done and has not failed: %+v; %+v; %+v", n.Name, *n, d, d.Status)
		}
	}
	if d.After != 0 || len(d.Grant) > 0 || d.Status != nil && d.Status.Stage != v1alpha1.RolloutDone {
		t.Fatalf("it goes on when everything is over: %+v %+v", d, d.Status)
	}
}
