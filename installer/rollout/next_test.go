package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// simulate simulates a fleet for some turns of a minute and returns which node started when, with the stages between.
func simulate(h *history, turns int) []string {
	var story []string
	stage := v1alpha1.RolloutStage("")
	for range turns {
		d := h.turn()
		if d.Status != nil && d.Status.Stage != stage {
			stage = d.Status.Stage
			story = append(story, string(stage))
		}
		story = append(story, d.Grant...)
		h.pass(time.Minute)
		for i := range h.Nodes {
			h.live(&h.Nodes[i])
		}
	}
	return story
}

func TestStories(t *testing.T) {
	tests := []struct {
		name   string
		policy v1alpha1.UpgradePolicy
		nodes  int
		change func(h *history)
		turns  int
		want   string
	}{
		{"one canary, then one at a time", v1alpha1.UpgradePolicy{}, 4, nil, 30, "Canary n00 Soak Waves n01 n02 n03 Done"},
		{"no canary", v1alpha1.UpgradePolicy{Canary: number(0)}, 2, nil, 30, "Waves n00 n01 Done"},
		{"nothing to do", v1alpha1.UpgradePolicy{}, 2, func(h *history) { h.unwant() }, 9, ""},
		{"fewest pods first", v1alpha1.UpgradePolicy{Canary: number(0)}, 3, func(h *history) { h.Nodes[0].Pods, h.Nodes[1].Pods = 5, 2 }, 30,
			"Waves n02 n01 n00 Done"},
		{"the nodes of a clique follow each other", v1alpha1.UpgradePolicy{Canary: number(0)}, 4, func(h *history) {
			h.Nodes[0].Clique, h.Nodes[3].Clique, h.Nodes[3].Pods = "c", "c", 9
			h.Nodes[1].Pods, h.Nodes[2].Pods = 10, 11
		}, 30, "Waves n00 n03 n01 n02 Done"},
		{"a node that fails lets others go on and is tried again last", v1alpha1.UpgradePolicy{Canary: number(0)}, 3,
			func(h *history) { h.bad["n00"] = true }, 60, "Waves n00 n01 n02 n00 Done"},
		{"a canary that fails: another one", v1alpha1.UpgradePolicy{}, 3, func(h *history) { h.bad["n00"] = true }, 60,
			"Canary n00 n01 Soak Waves n02 n00 Done"},
		{"the second node that fails pauses", v1alpha1.UpgradePolicy{}, 4, func(h *history) { h.bad["n00"], h.bad["n01"] = true, true }, 60,
			"Canary n00 n01 Paused"},
		{"a larger budget does not", v1alpha1.UpgradePolicy{FailureBudget: percent(50)}, 4, func(h *history) { h.bad["n00"], h.bad["n01"] = true, true }, 90,
			"Canary n00 n01 n02 Soak Waves n03 n00 n01 Done"},
		{"a pause that a person ends", v1alpha1.UpgradePolicy{}, 3, func(h *history) { h.bad["n00"], h.bad["n01"], h.Resumed = true, true, "true" }, 25,
			"Canary n00 n01 n02 Soak Waves n00 n01"},
		{"not automatic", v1alpha1.UpgradePolicy{Auto: new(bool)}, 2, nil, 9, "Paused"},
		{"not automatic, and started", v1alpha1.UpgradePolicy{Auto: new(bool), Canary: number(0)}, 2, func(h *history) { h.Resumed = "new-0+new-1" }, 30,
			"Paused Waves n00 n01 Done"},
		{"started for another driver", v1alpha1.UpgradePolicy{Auto: new(bool)}, 2, func(h *history) { h.Resumed = "new-0" }, 9, "Paused"},
		{"paused by a person", v1alpha1.UpgradePolicy{}, 2, func(h *history) { h.Paused = true }, 9, "Paused"},
		{"a node that is left out", v1alpha1.UpgradePolicy{Canary: number(0)}, 2, func(h *history) { h.Nodes[0].Skipped = true }, 9, "Waves n01 Done"},
		{"a node that is cordoned does not hold up others", v1alpha1.UpgradePolicy{Canary: number(0), MaxUnavailable: number(2)}, 3,
			func(h *history) { h.Nodes[0].Available = false }, 30, "Waves n01 n02"},
		{"nodes that are out for other reasons count", v1alpha1.UpgradePolicy{Canary: number(0)}, 3,
			func(h *history) { h.Nodes[0].Available = false }, 30, "Waves"},
		{"many at a time", v1alpha1.UpgradePolicy{MaxParallel: new(int32), MaxUnavailable: percent(50), Canary: number(2)}, 5, nil, 30,
			"Canary n00 n01 Soak Waves n02 n03 n04 Done"},
		{"evictions are retried without end", v1alpha1.UpgradePolicy{Canary: number(0)}, 1,
			func(h *history) { h.blocked["n00"] = true }, 50, "Waves n00 n00 n00 n00"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newHistory(test.policy, test.nodes)
			h.want("new")
			if test.change != nil {
				test.change(h)
			}
			if got := strings.Join(simulate(h, test.turns), " "); got != test.want {
				t.Errorf("got  %s\nwant %s\n%+v", got, test.want, h.Status)
			}
		})
	}
}

func number(n int32) *intstr.IntOrString  { v := intstr.FromInt32(n); return &v }
func percent(n int32) *intstr.IntOrString { v := intstr.FromString(fmt.Sprintf("%d%%", n)); return &v }

func (h *history) unwant() {
	for i := range h.Nodes {
		h.Nodes[i].Wanted = h.Nodes[i].Current
	}
}

func TestNewNodesAreGrantedAtOnce(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{Window: &v1alpha1.MaintenanceWindow{Start: "00:00"}}, 3)
	for i := range h.Nodes {
		n := &h.Nodes[i]
		n.Current, n.LastGood, n.New, n.Phase, n.Available = "", "", true, v1alpha1.PhasePreflight, false
	}
	h.Paused = true
	d := h.turn()
	if diff := cmp.Diff([]string{"n00", "n01", "n02"}, d.Grant); diff != "" || d.Status != nil {
		t.Errorf("granted (-want +got): %s; status %+v", diff, d.Status)
	}
	if d = h.turn(); len(d.Grant) != 0 {
		t.Errorf("granted twice: %v", d.Grant)
	}
}

// TestA9FailureIsNamed checks that the message names the failed node and its reason when failures pause a rollout.
func TestA9FailureIsNamed(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{FailureBudget: number(0)}, 2)
	h.want("new")
	h.bad["n00"] = true
	simulate(h, 9)
	for _, part := range []string{"n00: DriverFailed", v1alpha1.AnnotationResume, h.Status.Digest} {
		if !strings.Contains(h.Status.Reason, part) {
			t.Errorf("the reason lacks %q: %s", part, h.Status.Reason)
		}
	}
	h.Resumed = h.Status.Digest
	if d := h.turn(); d.Status.Stage == v1alpha1.RolloutPaused {
		t.Errorf("it stays paused: %+v", d.Status)
	}
}

func TestRetriesRestLongerEachTime(t *testing.T) {
	policy := v1alpha1.UpgradePolicy{Canary: number(0), RetryAfter: &metav1.Duration{Duration: time.Minute}}.Complete()
	for count, want := range map[int32]time.Duration{1: time.Minute, 2: 2 * time.Minute, 3: 4 * time.Minute, 40: 64 * time.Minute} {
		f := Fleet{Now: monday, Policy: policy, Resumed: "true", Nodes: []Node{{
			Name: "a", Wanted: "new", Current: "old", LastGood: "old", Phase: v1alpha1.PhaseBlocked, Available: true,
			Attempt: &v1alpha1.Attempt{Digest: "new", Count: count, Reason: v1alpha1.AttemptDrainBlocked, Last: metav1.NewTime(monday)},
		}}}
		if d := Next(f); d.After != want || len(d.Grant) != 0 {
			t.Errorf("after %d attempts: look again after %s, granted %v; want %s", count, d.After, d.Grant, want)
		}
	}
}

// TestNewDriverInTheMiddle checks that nodes that are already changing get a third driver, and that nodes that roll back do not.
func TestNewDriverInTheMiddle(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{Canary: number(0), MaxParallel: new(int32), MaxUnavailable: percent(100)}, 3)
	h.want("new")
	h.bad["n01"] = true
	simulate(h, 2)
	h.want("new")
	if d := h.turn(); len(d.Grant) != 0 {
		t.Errorf("granted to a node on its way back: %v", d.Grant)
	}
	h = newHistory(v1alpha1.UpgradePolicy{}, 3)
	h.want("new")
	simulate(h, 1)
	h.want("newer")
	if d := h.turn(); !cmp.Equal(d.Grant, []string{"n00"}) {
		t.Errorf("granted %v, want n00 again", d.Grant)
	}
}

// TestMIGModeIsARollout checks that changes of the MIG mode have the same limits as drivers.
func TestMIGModeIsARollout(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{}, 3)
	for i := range h.Nodes {
		h.Nodes[i].Change = true
	}
	d := h.turn()
	if !cmp.Equal(d.Grant, []string{"n00"}) || d.Status.Digest != "mig-mode" || d.Status.Stage != v1alpha1.RolloutCanary {
		t.Fatalf("first: %+v %+v", d, d.Status)
	}
	n := h.node("n00")
	n.Changing = true
	if d = h.turn(); len(d.Grant) != 0 || d.Status.Running != 1 {
		t.Fatalf("while one changes: %+v %+v", d, d.Status)
	}
	h.pass(time.Minute)
	n.Changing, n.Since = false, h.Now
	if d = h.turn(); d.Status.Stage != v1alpha1.RolloutSoak || d.After != h.Policy.Soak.Duration {
		t.Fatalf("after the canary: %+v %+v", d, d.Status)
	}
	h.pass(h.Policy.Soak.Duration)
	if d = h.turn(); !cmp.Equal(d.Grant, []string{"n01"}) {
		t.Fatalf("after the soak: %+v %+v", d, d.Status)
	}
}

// TestMIGModeOfHostDriversIsARollout checks that the limits also apply to nodes that keep their host's driver: they have pods, and no driver of ours.
func TestMIGModeOfHostDriversIsARollout(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{}, 6)
	for i := range h.Nodes {
		h.keepHost(&h.Nodes[i])
		h.Nodes[i].Change, h.Nodes[i].Pods = true, 2
	}
	h.Paused = true
	d := h.turn()
	if len(d.Grant) != 0 || d.Plan.Nodes != 6 || d.Plan.Pods != 12 || d.Status == nil || d.Status.Stage != v1alpha1.RolloutPaused || len(d.Waits) != 6 {
		t.Fatalf("while it is paused: %+v %+v", d, d.Status)
	}
	h.Paused = false
	if story := strings.Join(simulate(h, 60), " "); story != "Canary n00 Soak Waves n01 n02 n03 n04 n05 Done" {
		t.Errorf("it goes %s", story)
	}
}

func TestPlan(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{MaxParallel: new(int32), MaxUnavailable: percent(30)}, 6)
	h.want("new")
	for i := range h.Nodes {
		h.Nodes[i].Pods = int32(i)
	}
	h.Nodes[5].Skipped = true
	h.Paused = true
	want := v1alpha1.Plan{Nodes: 5, Pods: 10, Waves: []v1alpha1.Wave{
		{Count: 1, Nodes: []string{"n00"}}, {Count: 2, Nodes: []string{"n01", "n02"}}, {Count: 2, Nodes: []string{"n03", "n04"}},
	}}
	if diff := cmp.Diff(want, h.turn().Plan); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPlanOfManyNodesIsShort(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{MaxParallel: new(int32), MaxUnavailable: percent(2)}, 5000)
	h.want("new")
	plan := h.turn().Plan
	if plan.Nodes != 5000 || len(plan.Waves) != 16 || plan.Waves[1].Count != 100 || len(plan.Waves[1].Nodes) != 64 {
		t.Errorf("%d nodes in %d waves, the second of %d with %d names", plan.Nodes, len(plan.Waves), plan.Waves[1].Count, len(plan.Waves[1].Nodes))
	}
}

func TestShareRoundsUp(t *testing.T) {
	for _, test := range []struct {
		of          *intstr.IntOrString
		total, want int
	}{{percent(25), 3, 1}, {percent(25), 4, 1}, {percent(25), 5, 2}, {percent(0), 9, 0}, {number(3), 1, 3}, {percent(100), 7, 7}} {
		if got := share(test.of, test.total); got != test.want {
			t.Errorf("%s of %d is %d, want %d", test.of.String(), test.total, got, test.want)
		}
	}
}

// TestWayBackIsNeverHeld checks that a changing node may return to its last good driver while the rollout is paused, and gets no other one.
func TestWayBackIsNeverHeld(t *testing.T) {
	for version, want := range map[string][]string{"old": {"n00"}, "newer": nil} {
		h := newHistory(v1alpha1.UpgradePolicy{}, 2)
		h.want("new")
		simulate(h, 1)
		h.Paused = true
		for i := range h.Nodes {
			h.Nodes[i].Wanted = version
		}
		if d := h.turn(); !cmp.Equal(d.Grant, want) {
			t.Errorf("%s: granted %v, want %v", version, d.Grant, want)
		}
	}
}

// TestNextRolloutHasCanariesAgain checks that a rollout is distinct from the previous one with the same target.
func TestNextRolloutHasCanariesAgain(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{}, 3)
	h.Status = &v1alpha1.RolloutStatus{Digest: "mig-mode", Stage: v1alpha1.RolloutDone}
	for i := range h.Nodes {
		h.Nodes[i].Change = true
	}
	if d := h.turn(); d.Status.Stage != v1alpha1.RolloutCanary {
		t.Errorf("the next rollout begins in stage %s", d.Status.Stage)
	}
}

func TestCliqueThatHasBegunComesFirst(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{}, 3)
	h.want("new")
	a, b, c := &h.Nodes[0], &h.Nodes[1], &h.Nodes[2]
	a.Pods, b.Clique, b.Pods, c.Clique = 1, "x", 9, "x"
	if first := order([]*Node{a, b})[0]; first != a {
		t.Errorf("%s comes first", first.Name)
	}
	c.Current, c.Phase = c.Wanted, v1alpha1.PhaseUpgrading
	if first := order([]*Node{a, b, c})[1]; first != b {
		t.Errorf("%s comes after the node of its clique", first.Name)
	}
}

// TestDownNodesDoNotQueue is the case of NVIDIA/gpu-operator#1215 and #1220: six nodes with precompiled drivers boot into another kernel and serve no
// GPUs until they get its driver. No limit that protects pods holds them.
func TestDownNodesDoNotQueue(t *testing.T) {
	saturday := &v1alpha1.MaintenanceWindow{Days: []string{"Sat"}, Start: "22:00", Duration: metav1.Duration{Duration: time.Hour}}
	for name, test := range map[string]struct {
		policy v1alpha1.UpgradePolicy
		change func(h *history)
		want   int
		stage  v1alpha1.RolloutStage
	}{
		"by default":         {v1alpha1.UpgradePolicy{}, nil, 6, v1alpha1.RolloutCanary},
		"in another window":  {v1alpha1.UpgradePolicy{Window: saturday}, nil, 6, v1alpha1.RolloutCanary},
		"not automatic":      {v1alpha1.UpgradePolicy{Auto: new(bool)}, nil, 6, v1alpha1.RolloutCanary},
		"paused by a person": {v1alpha1.UpgradePolicy{}, func(h *history) { h.Paused = true }, 0, v1alpha1.RolloutPaused},
		"one skipped, one cordoned": {v1alpha1.UpgradePolicy{}, func(h *history) {
			h.Nodes[0].Skipped, h.Nodes[1].Available = true, false
		}, 4, v1alpha1.RolloutCanary},
		"one with its driver loaded and pods that use it": {v1alpha1.UpgradePolicy{Window: saturday}, func(h *history) { h.Nodes[0].Down = false }, 5,
			v1alpha1.RolloutCanary},
		"with failures over the budget": {v1alpha1.UpgradePolicy{FailureBudget: number(0)}, func(h *history) {
			h.Nodes[0].Attempt = &v1alpha1.Attempt{Digest: h.Nodes[0].Wanted, Count: 9, Reason: "DriverFailed"}
		}, 5, v1alpha1.RolloutCanary},
		"while an upgrade of the others is not automatic": {v1alpha1.UpgradePolicy{Auto: new(bool)}, func(h *history) {
			for i := 6; i < 9; i++ {
				h.Nodes[i].Wanted = "new"
			}
		}, 6, v1alpha1.RolloutPaused},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(test.policy, 9)
			for i := range 6 {
				h.bootKernel(&h.Nodes[i])
				h.Nodes[i].Pods = 2 // they stay bound, and cannot start
			}
			if test.change != nil {
				test.change(h)
			}
			d := h.turn()
			if len(d.Restart) != test.want || len(d.Grant) != 0 || d.Status.Stage != test.stage {
				t.Fatalf("restart %v, grant %v, want %d; %+v, %v", d.Restart, d.Grant, test.want, d.Status, d.Waits)
			}
		})
	}
}

// TestDownNodesLeaveTheLimitsOfOthers checks that nodes in service start as if no node were installing a driver because it was down, and that the MIG
// mode of a node that was down is granted like that of every other node.
func TestDownNodesLeaveTheLimitsOfOthers(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{Canary: number(0), MaxUnavailable: percent(100)}, 9)
	h.want("new")
	for i := range 6 {
		h.bootKernel(&h.Nodes[i])
	}
	h.Nodes[0].Change = true
	d := h.turn()
	if len(d.Restart) != 6 || !cmp.Equal(d.Grant, []string{"n06"}) || !h.Nodes[0].Change {
		t.Fatalf("restart %v, grant %v", d.Restart, d.Grant)
	}
	for i := range h.Nodes {
		h.live(&h.Nodes[i])
	}
	if d = h.turn(); len(d.Grant) != 0 || d.Status.Running != 6 { // n00 counts as waiting for its MIG mode
		t.Errorf("a second node starts: %v, %+v", d.Grant, d.Status)
	}
}

// TestDownNodesHaveABudget checks that a fleet that boots into another kernel does not pull the driver's image on all nodes at once.
func TestDownNodesHaveABudget(t *testing.T) {
	for nodes, want := range map[int]int{6: 6, 100: 16, 400: 40} {
		h := newHistory(v1alpha1.UpgradePolicy{}, nodes)
		for i := range h.Nodes {
			h.bootKernel(&h.Nodes[i])
		}
		for range 2 { // a repeated decision exceeds nothing
			h.turn()
		}
		started := 0
		for i := range h.Nodes {
			if h.Nodes[i].restarting() {
				started++
			}
		}
		if d := h.turn(); started != want || len(d.Restart) != 0 || nodes > want && d.Waits[0].Reason != WaitRestart {
			t.Errorf("%d of %d nodes started, want %d; then %v, %v", started, nodes, want, d.Restart, d.Waits)
		}
	}
}

// TestGrantedNodeTakesASlotAtOnce checks that a node that rolled back takes a slot as soon as it is granted a driver, before its phase changes.
func TestGrantedNodeTakesASlotAtOnce(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{Canary: number(0), MaxUnavailable: percent(100)}, 2)
	h.want("new")
	h.Nodes[0].Phase, h.Nodes[1].Phase = v1alpha1.PhaseRolledBack, v1alpha1.PhaseRolledBack
	if d := h.turn(); len(d.Grant) != 1 {
		t.Fatalf("granted %v", d.Grant)
	}
	if d := h.turn(); len(d.Grant) != 0 {
		t.Errorf("granted %v while the first node is about to change", d.Grant)
	}
}
