package prepare

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

// history is a random history of one node with pods that need devices for themselves, an API server whose content may be an older one, a scheduler that
// looks only at the API server, a kubelet and an agent. It implements Claims as kubelet-plugin/server does.
type history struct {
	*world
	t      *testing.T
	random *rand.Rand
	now    int // minutes
	// allocated are the claims that the API server has, by UID; saved is its backup.
	allocated, saved map[string]Claim
	// missing is when the agent first missed a claim in the API server.
	missing map[string]int
	// up is whether kubelet runs, known are the claims in its state file.
	up    bool
	known map[string]Ref
	// containers run whether the agent, kubelet and the API server have their claim or not.
	containers []*container
	serial     int
	blindTo    Usage
}

// container is the witness: it uses its device from the start to the end.
type container struct {
	Claim
	// ends is when it ends once its pod is deleted. unsupervised is one whose claim kubelet has lost.
	ends         int
	deleted      bool
	unsupervised bool
	// computing is whether it has a process on the GPU now.
	computing bool
}

func newHistory(t *testing.T, locks string, seed uint64) *history {
	w := emptyWorld(nodeOf(t, "h100x2"), locks)
	return &history{
		world: w, t: t, random: rand.New(rand.NewPCG(seed, 1)), up: true,
		allocated: map[string]Claim{}, saved: map[string]Claim{}, missing: map[string]int{}, known: map[string]Ref{},
	}
}

// grace is the time for which a claim is missing before it is released, in minutes.
const grace = 10

// Running implements Claims.
func (h *history) Running(context.Context) map[Ref]bool {
	running := map[Ref]bool{}
	if h.up && h.blindTo != UsedByKubelet {
		for _, ref := range h.known {
			running[ref] = true
		}
	}
	return running
}

// Held implements Claims.
func (h *history) Held(_ context.Context, r Ref) (bool, error) {
	if _, there := h.allocated[r.UID]; there {
		delete(h.missing, r.UID)
		return true, nil
	}
	since, seen := h.missing[r.UID]
	if !seen {
		h.missing[r.UID] = h.now
		return true, nil
	}
	_, known := h.known[r.UID]
	switch {
	case h.now-since < grace:
		return true, nil
	case h.blindTo == UsedByKubelet:
		return false, nil
	case !h.up:
		return true, &InUse{UsageUnknown, os.ErrNotExist}
	case known:
		return true, &InUse{UsedByKubelet, os.ErrExist}
	}
	return false, nil
}

// Allocated implements Claims.
func (h *history) Allocated(_ context.Context, r Ref) (Claim, error) {
	c, there := h.allocated[r.UID]
	if !there {
		return Claim{}, ErrNoClaim
	}
	return c, nil
}

// Processes implements Processes.
func (h *history) Processes(ctx context.Context, gpuName string) ([]gpu.Process, error) {
	if h.blindTo == UsedByProcess {
		return nil, nil
	}
	card := h.gpus[gpuName]
	card.processes = nil
	for i, c := range h.containers {
		w := c.Wanted[0]
		if w.Use.GPU != gpuName || !c.computing {
			continue
		}
		process := gpu.Process{PID: i + 1, GI: gpu.NoInstance}
		for _, there := range card.Instances {
			if w.Use.Shape == gpu.MIG && there.Placement == w.Use.Placement {
				process.GI = there.GI
			}
		}
		card.processes = append(card.processes, process)
	}
	return h.machine.Processes(ctx, gpuName)
}

// agent is one run of the agent, which dies at the event with the number.
func (h *history) agent(dies int) *Preparer {
	event := -1
	p := h.process(h.t, func(When, Ref, Step) {
		if event++; event == dies {
			clear(h.missing)
			panic(killed{})
		}
	})
	p.Claims, p.Processes = h, h
	return p
}

// death returns the event at which the agent dies: usually never.
func (h *history) death() int {
	if h.random.IntN(4) > 0 {
		return -1
	}
	return h.random.IntN(16)
}

func (h *history) prepare(c Claim) error {
	_, err := survive(func() error { _, err := h.agent(h.death()).Prepare(quiet(h.t), c); return err })
	return err
}

func (h *history) unprepare(r Ref) error {
	_, err := survive(func() error { return h.agent(h.death()).Unprepare(quiet(h.t), r) })
	return err
}

// reconcile is Reconcile on this goroutine, where the kill is caught.
func (h *history) reconcile(dies int) {
	p := h.agent(dies)
	claims, err := p.storedClaims()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range claims {
		if dead, _ := survive(func() error { return p.reconcile(quiet(h.t), c, h.Running(h.t.Context())) }); dead {
			return
		}
	}
}

// schedule allocates a device that is free on the API server.
func (h *history) schedule() {
	wanted := []Wanted{h.whole(0), h.whole(1), h.slice(0, 19, 0), h.slice(0, 19, 3)}[h.random.IntN(4)]
	empty := h.gpus[wanted.Use.GPU].Empty(sharesOfGPU)
	for _, uid := range slices.Sorted(maps.Keys(h.allocated)) {
		if other := h.allocated[uid].Wanted[0]; other.Use.GPU == wanted.Use.GPU {
			empty = occupy(empty, other.Use.Use)
		}
	}
	if _, err := empty.Take(wanted.Use.Use); err != nil {
		return
	}
	h.serial++
	c := claim(strconv.Itoa(h.serial), wanted)
	h.allocated[c.UID] = c
}

// remove deletes a claim and its pod by force: both leave the API server at once.
func (h *history) remove() {
	if uids := slices.Sorted(maps.Keys(h.allocated)); len(uids) > 0 {
		delete(h.allocated, uids[h.random.IntN(len(uids))])
	}
}

// sync is one round of kubelet: it starts the containers of pods with prepared claims, ends those of deleted pods after their grace period, and
// then unprepares their claims.
func (h *history) sync() {
	if !h.up {
		return
	}
	for _, c := range h.containers {
		_, there := h.allocated[c.UID]
		if !there && !c.deleted {
			c.deleted, c.ends = true, h.now+h.random.IntN(60)
		}
		c.unsupervised = c.unsupervised && !there
	}
	h.containers = slices.DeleteFunc(h.containers, func(c *container) bool { return c.deleted && h.now >= c.ends })
	running := func(uid string) bool {
		return slices.ContainsFunc(h.containers, func(c *container) bool { return c.UID == uid })
	}
	for _, uid := range slices.Sorted(maps.Keys(h.allocated)) {
		c := h.allocated[uid]
		h.known[uid] = c.Ref
		if !running(uid) && h.prepare(c) == nil {
			h.containers = append(h.containers, &container{Claim: c, computing: h.random.IntN(2) == 0})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(h.known)) {
		if _, there := h.allocated[uid]; !there && !running(uid) && h.unprepare(h.known[uid]) == nil {
			delete(h.known, uid)
		}
	}
}

// loseState starts kubelet after its state file was removed: it has no claims until it prepares those of the pods on the API server again. The containers
// compute meanwhile: one without a process, whose pod is deleted before that, is the case that the agent cannot detect.
func (h *history) loseState() {
	h.up = true
	clear(h.known)
	for _, c := range h.containers {
		c.unsupervised, c.computing = true, true
	}
}

// events are what happens, by name, each as often as its weight.
var events = []struct {
	name   string
	weight int
	do     func(h *history)
}{
	{"a pod is scheduled", 8, (*history).schedule},
	{"kubelet works", 8, (*history).sync},
	{"a pod is deleted by force", 3, (*history).remove},
	{"time passes", 4, func(h *history) { h.now += h.random.IntN(2 * grace) }},
	{"the agent reconciles", 6, func(h *history) { h.reconcile(h.death()) }},
	{"kubelet stops", 1, func(h *history) { h.up = false }},
	{"kubelet starts", 2, func(h *history) { h.up = true }},
	{"kubelet starts without its state", 1, (*history).loseState},
	{"the agent restarts", 1, func(h *history) { clear(h.missing) }},
	{"the clock jumps over the time of grace", 1, func(h *history) {
		for uid := range h.missing {
			h.missing[uid] -= 2 * grace
		}
	}},
	{"etcd is saved", 1, func(h *history) { h.saved = maps.Clone(h.allocated) }},
	{"etcd is restored", 1, func(h *history) { h.allocated = maps.Clone(h.saved) }},
	{"programs start and end", 2, func(h *history) {
		for _, c := range h.containers {
			c.computing = c.unsupervised || h.random.IntN(2) == 0
		}
	}},
}

// overlap returns two containers that use the same GPU, of which one has it for itself, or the same MIG device; empty if there are none.
func (h *history) overlap() string {
	for i, a := range h.containers {
		for _, b := range h.containers[:i] {
			x, y := a.Wanted[0].Use, b.Wanted[0].Use
			if x.GPU == y.GPU && (x.Shape == gpu.Whole || y.Shape == gpu.Whole || x.Placement == y.Placement) {
				return fmt.Sprintf("claims %s (%v) and %s (%v) use %s", a.Ref, x.Use, b.Ref, y.Use, x.GPU)
			}
		}
	}
	return ""
}

// play lets one event happen and returns its name.
func (h *history) play() string {
	total := 0
	for _, e := range events {
		total += e.weight
	}
	number := h.random.IntN(total)
	for _, e := range events {
		if number -= e.weight; number < 0 {
			e.do(h)
			return e.name
		}
	}
	return ""
}

// run plays a history and returns its first fault with the events up to it; empty without one. At the end, everything is released when the pods,
// kubelet and the API server are in order.
func (h *history) run() (fault string, played []string) {
	for range 60 {
		played = append(played, h.play()+" at "+strconv.Itoa(h.now))
		if fault := h.overlap(); fault != "" {
			return fault, played
		}
	}
	h.up = true
	clear(h.allocated)
	for range 8 {
		h.now += 60
		h.sync()
		h.reconcile(-1)
	}
	for _, left := range h.litter() {
		return "left: " + left, append(played, "the end of all pods")
	}
	return "", nil
}

// histories plays so many histories and returns the number of faults and the first one.
func histories(t *testing.T, count int, blindTo Usage) (faults int, first string) {
	t.Helper()
	locks := disktest.Folder(t)
	for seed := range uint64(count) { //nolint:gosec // positive
		h := newHistory(t, locks, seed)
		h.blindTo = blindTo
		if fault, played := h.run(); fault != "" {
			if faults++; faults == 1 {
				first = fmt.Sprintf("history %d: %s after %q", seed, fault, played)
			}
		}
	}
	return faults, first
}

// historiesVariable sets the number of histories; make test-long sets it.
const historiesVariable = "TESSERA_HISTORIES"

// TestExclusiveDevicesHaveOneTenant plays histories of deletion by force, a stopped kubelet, crashes of the agent, restored backups of etcd and jumps of
// the clock. In none, two containers have one exclusive device, and in the end everything is released.
func TestExclusiveDevicesHaveOneTenant(t *testing.T) {
	t.Parallel()
	count := 500
	if text := os.Getenv(historiesVariable); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if faults, first := histories(t, count, ""); faults > 0 {
		t.Errorf("%d of %d histories: %s", faults, count, first)
	}
}

// TestHistoriesDetectMissingChecks leaves out one check: the histories must notice.
func TestHistoriesDetectMissingChecks(t *testing.T) {
	t.Parallel()
	for _, blindTo := range []Usage{UsedByKubelet, UsedByProcess} {
		faults, first := histories(t, 500, blindTo)
		if faults == 0 {
			t.Errorf("without the check of %s no history fails: the histories prove nothing", blindTo)
		}
		t.Logf("without the check of %s: %d histories fail, such as %s", blindTo, faults, first)
	}
}
