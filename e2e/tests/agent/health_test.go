package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// brief has a short quiet period, also for some XIDs, which clear by themselves.
const brief = `health:
  quietPeriod: 5s
  xids:
  - {code: 79, severity: Fatal, remedy: Wait}
  - {code: 901, severity: Fatal, remedy: Wait}
  - {code: 902, severity: Critical, remedy: Wait}
  - {code: 903, severity: Warning, remedy: Wait}
`

// illness is a signal and the way to inject it into a GPU.
type illness struct {
	signal gpu.Signal
	// mark is the taint's value and effect.
	mark   string
	inject func(dir string, index int) error
	// unseen is true if a GPU in MIG mode does not report the signal.
	unseen bool
	// lasting is true if the signal clears only after a reset or reboot.
	lasting bool
}

func illnesses() []illness {
	slowed := func(by fakegpu.Brake) func(string, int) error {
		return func(dir string, index int) error { return fakegpu.SlowDown(dir, index, by) }
	}
	xid := func(code int) func(string, int) error {
		return func(dir string, index int) error { return fakegpu.XID(dir, fakegpu.On(index), code) }
	}
	return []illness{
		{signal: gpu.SignalXID, mark: "903 None", inject: xid(903)},
		{signal: gpu.SignalXID, mark: "901 NoSchedule", inject: xid(901)},
		{signal: gpu.SignalXID, mark: "902 NoSchedule", inject: xid(902)},
		{signal: gpu.SignalLost, mark: "NoSchedule", inject: fakegpu.Lose},
		{signal: gpu.SignalHeat, mark: "None", inject: slowed(fakegpu.HeatBrake)},
		{signal: gpu.SignalPower, mark: "None", inject: slowed(fakegpu.PowerBrake)},
		{signal: gpu.SignalECC, mark: "NoSchedule", lasting: true, unseen: true, inject: func(dir string, index int) error { return fakegpu.ECC(dir, index, 0, 1) }},
		{signal: gpu.SignalNVLink, mark: "NoSchedule", unseen: true, inject: func(dir string, index int) error { return fakegpu.LinkDown(dir, index, 3) }},
		// This signal is the last, since it persists and affects all devices.
		{signal: gpu.SignalRemapPending, mark: "NoSchedule", lasting: true, inject: func(dir string, index int) error {
			return fakegpu.Remap(dir, index, fakegpu.Remapping{Uncorrectable: 1, Pending: true})
		}},
	}
}

// TestEverySignalOnEveryShape checks that every signal affects every device of its GPU, in every shape, and no other
// device; that prepared claims stay prepared; and that the GPU recovers when its health is proven.
func TestEverySignalOnEveryShape(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x8", brief)
	w.open(shared.agent)
	w.hold()
	before := w.truth()
	w.kubeletKnows("all are well", nowhere)
	for _, ill := range illnesses() {
		t.Run(strings.ReplaceAll(fmt.Sprint(ill.signal, " ", ill.mark), " ", "-"), func(t *testing.T) {
			indices := []int{sliced, turned, served, whole}
			if ill.unseen {
				indices = indices[1:]
			}
			sick := w.on("sick", indices...)
			told := []string{"slice", "neighbour", "turns", "mps", "whole"}
			if ill.unseen {
				told = told[2:]
			}
			if strings.HasSuffix(ill.mark, "None") {
				sick, told = nowhere, nil
			}
			begin := time.Now()
			end := w.goesOn(func() error {
				var err error
				for _, i := range indices {
					err = errors.Join(err, ill.inject(w.machine(), i))
				}
				return err
			})
			w.marked("tainted", ill.signal, w.on(ill.mark, indices...))
			t.Logf("%s: tainted after %v", ill.signal, time.Since(begin).Round(time.Millisecond))
			w.kubeletKnows("kubelet knows", sick)
			t.Logf("%s: kubelet knows after %v at most", ill.signal, time.Since(begin).Round(time.Millisecond))
			w.claimsSay("claims say", told...)
			end()
			for name, claim := range w.claims {
				if again := w.kubelet.mustPrepare; ill.signal != gpu.SignalLost && len(again(claim)) == 0 {
					t.Errorf("claim %s lost its devices", name)
				}
			}
			w.must(fakegpu.Reset(w.machine()))
			if !ill.lasting {
				w.marked("well again", ill.signal, nowhere)
			}
		})
	}
	after := w.truth()
	for i := range held {
		if len(after.GPUs[i].Instances) != len(before.GPUs[i].Instances) || after.GPUs[i].ComputeMode != before.GPUs[i].ComputeMode {
			t.Errorf("GPU %d is not what it was: %+v, before %+v", i, after.GPUs[i], before.GPUs[i])
		}
	}
	// A lasting signal persists over a restart of the agent and clears in another boot.
	since := w.since(gpu.SignalECC, whole)
	w.agent.kill()
	w.open(shared.agent)
	w.marked("remembered", gpu.SignalECC, w.on("NoSchedule", turned, served, whole))
	if again := w.since(gpu.SignalECC, whole); !again.Equal(since) {
		t.Errorf("ecc since %v, before the agent's restart since %v", again, since)
	}
	w.agent.kill()
	w.must(fakegpu.Reboot(w.machine()))
	w.open(shared.agent)
	for _, signal := range gpu.Signals() {
		w.marked("well after a reboot", signal, nowhere)
	}
	w.kubeletKnows("all are well", nowhere)
}

// TestRecoveryIsProven checks that a signal which a reset or boot clears persists until the GPU has answered afterwards
// without it, independent of time, and that a signal which no reset clears persists.
func TestRecoveryIsProven(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", brief)
	w.open(shared.agent)
	w.must(fakegpu.Remap(w.machine(), 0, fakegpu.Remapping{Uncorrectable: 1, Failed: true}))
	w.must(fakegpu.Remap(w.machine(), 1, fakegpu.Remapping{Uncorrectable: 1, Pending: true}))
	w.marked("failed", gpu.SignalRemapFailed, w.on("NoSchedule", 0))
	w.marked("pending", gpu.SignalRemapPending, w.on("NoSchedule", 1))
	w.agent.kill()
	w.must(fakegpu.Reboot(w.machine())) // the row is remapped
	w.must(fakegpu.Remap(w.machine(), 1, fakegpu.Remapping{Uncorrectable: 1, Pending: true}))
	w.open(shared.agent)
	w.marked("failed in another boot, too", gpu.SignalRemapFailed, w.on("NoSchedule", 0))
	w.marked("pending again", gpu.SignalRemapPending, w.on("NoSchedule", 1))
	w.agent.kill()
	w.must(fakegpu.Reboot(w.machine()))
	w.open(shared.agent)
	w.marked("the row is remapped", gpu.SignalRemapPending, nowhere)
	w.marked("a GPU that must be replaced", gpu.SignalRemapFailed, w.on("NoSchedule", 0))
}

// TestSignalsOfSomeMachines covers retired pages, which exist only before Ampere, and fabric signals, which only GPUs
// of a rack report.
func TestSignalsOfSomeMachines(t *testing.T) {
	t.Parallel()
	for machine, ill := range map[string]illness{
		"dgx1": {signal: gpu.SignalRetirePending, inject: func(dir string, index int) error { return fakegpu.RetirePages(dir, index, 1) }},
		"gb200x4": {signal: gpu.SignalFabric, inject: func(dir string, index int) error {
			return fakegpu.Fabric(dir, index, fakegpu.FabricReport{State: fakegpu.FabricCompleted, Health: fakegpu.FabricRouteUnhealthy})
		}},
	} {
		t.Run(string(ill.signal), func(t *testing.T) {
			w := newSickbay(t, machine, brief)
			w.open(shared.agent)
			w.must(ill.inject(w.machine(), 2))
			w.marked("sick", ill.signal, w.on("NoSchedule", 2))
			w.kubeletKnows("kubelet knows", w.on("sick", 2))
		})
	}
}

// TestDriverAwayIsNotLost checks that an absent driver is not reported as lost GPUs, and leaves no signal when it
// returns.
func TestDriverAwayIsNotLost(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", "")
	w.open(shared.agent)
	claim := w.claim("whole", []gpu.Device{w.whole(1)}, onNode(w.node))
	w.claims["whole"] = claim
	w.kubelet.mustPrepare(claim)
	for range 3 {
		w.must(fakegpu.RemoveDriver(w.machine()))
		w.marked("the driver is away", gpu.SignalDriver, w.on("NoSchedule", 0, 1))
		w.marked("and nothing else", gpu.SignalLost, nowhere)
		w.claimsSay("so does the claim", "whole")
		w.must(fakegpu.RestoreDriver(w.machine()))
		w.marked("it is back", gpu.SignalDriver, nowhere)
		w.kubeletKnows("all are well", nowhere)
		w.claimsSay("well again")
	}
	events, err := shared.client.CoreV1().Events(claim.GetNamespace()).List(t.Context(), metav1.ListOptions{})
	w.must(err)
	for _, e := range events.Items {
		if e.Source.Host == w.name && strings.Contains(e.Message, "does not respond") && !strings.Contains(e.Message, "driver does not respond") {
			t.Errorf("%s %s is told: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
		}
	}
}

// TestASlicesXIDLeavesItsNeighbours checks that an XID of a MIG device affects only this device and those that need the
// whole GPU.
func TestASlicesXIDLeavesItsNeighbours(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x8", brief)
	w.open(shared.agent)
	w.hold()
	slice := w.slice(sliced, 14, 0)
	var place fakegpu.Place
	for _, i := range w.truth().GPUs[sliced].Instances {
		if i.Start == slice.Placement.Start {
			place = fakegpu.Place{GPU: sliced, Instance: int(i.ID), Compute: int(i.Computes[0].ID)}
		}
	}
	as := func(mark string) func(gpu.Device) string {
		return func(d gpu.Device) string {
			if d.GPU != slice.GPU || d.Shape == gpu.MIG && !d.Placement.Mask().Overlaps(slice.Placement.Mask()) {
				return ""
			}
			return mark
		}
	}
	sick := as("sick")
	end := w.goesOn(func() error { return fakegpu.XID(w.machine(), place, 902) })
	w.marked("the slice", gpu.SignalXID, as("902 NoSchedule"))
	w.kubeletKnows("kubelet knows", sick)
	w.claimsSay("claims say", "slice")
	end()
	beside := w.claim("beside", []gpu.Device{w.slice(sliced, 19, 6)})
	w.kubelet.mustPrepare(beside)
	w.kubelet.mustUnprepare(beside)
	w.marked("over", gpu.SignalXID, nowhere)
	w.must(fakegpu.InstanceECC(w.machine(), place, 1))
	w.marked("its memory", gpu.SignalECC, as("NoSchedule"))
	w.kubeletKnows("kubelet knows of its memory", sick)
}

// TestWorseThingsStay checks that the more severe signal stays, in either order, and that a harmless one has no effect.
func TestWorseThingsStay(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", strings.Replace(brief, "quietPeriod: 5s", "quietPeriod: 10m", 1))
	w.open(shared.agent)
	w.hears(0, 1)
	for _, code := range []int{13, 903, 901} {
		w.must(fakegpu.XID(w.machine(), fakegpu.On(0), code))
	}
	for _, code := range []int{901, 903, 13} {
		w.must(fakegpu.XID(w.machine(), fakegpu.On(1), code))
	}
	w.marked("the worst of each", gpu.SignalXID, w.on("901 NoSchedule", 0, 1))
	for range 3 {
		w.must(fakegpu.XID(w.machine(), fakegpu.On(1), 903))
	}
	w.must(fakegpu.XID(w.machine(), fakegpu.On(0), 902))
	w.agent.kill()
	w.open(shared.agent)
	w.marked("the worst of each, remembered", gpu.SignalXID, w.on("901 NoSchedule", 0, 1))
}

// TestReleaseEndsWhatPrograms checks that a signal which ends with the programs on a device clears when no claim holds
// the device.
func TestReleaseEndsWhatPrograms(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x8", "")
	w.open(shared.agent)
	w.hold()
	w.hears(whole)
	w.must(fakegpu.XID(w.machine(), fakegpu.On(whole), 94))
	w.marked("contained", gpu.SignalXID, w.on("94 NoSchedule", whole))
	w.kubelet.mustUnprepare(w.claims["whole"])
	delete(w.claims, "whole")
	w.marked("over", gpu.SignalXID, nowhere)
	w.kubeletKnows("all are well", nowhere)
}

// TestPublishingRefusedForAMinute lets the API server reject ResourceSlices for a minute: kubelet is notified
// immediately, and the taint is published later with the time of the fault.
func TestPublishingRefusedForAMinute(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	w := newSickbay(t, "h100x2", "")
	refuse := w.refusing()
	w.open(shared.agent)
	w.hears(1)
	refuse.Store(true)
	begin := time.Now()
	w.must(fakegpu.XID(w.machine(), fakegpu.On(1), 48))
	w.kubeletKnows("kubelet knows, without the API server", w.on("sick", 1))
	known := time.Now()
	end := time.NewTimer(time.Minute - time.Since(begin))
	defer end.Stop()
	<-end.C
	w.marked("not published", gpu.SignalXID, nowhere)
	refuse.Store(false)
	back := time.Now()
	w.marked("published", gpu.SignalXID, w.on("48 NoSchedule", 1))
	t.Logf("published %v after the API server took slices again", time.Since(back).Round(time.Millisecond))
	if since := w.since(gpu.SignalXID, 1); since.After(known) {
		t.Errorf("the taint says since %v, kubelet knew at %v", since, known)
	}
}

// refusing adds a proxy between agents and the API server that rejects writes of ResourceSlices while the value is
// true.
func (n *node) refusing() *atomic.Bool {
	n.t.Helper()
	return n.between(func(r *http.Request) bool {
		return r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, "/apis/resource.k8s.io/") && strings.Contains(r.URL.Path, "/resourceslices")
	})
}

// TestKilledBetweenNoticingAndTelling kills the agent before and after it saves and reports an event.
func TestKilledBetweenNoticingAndTelling(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", "")
	steps := filepath.Join(w.dir, "steps")
	for _, moment := range []string{"before save-health", "after save-health", "before report-health", "after report-health"} {
		t.Run(strings.ReplaceAll(moment, " ", "-"), func(t *testing.T) {
			fatal := fmt.Sprintf("%s of %s %s", moment, w.whole(1).GPU, gpu.SignalRemapPending)
			w.open(shared.crashing, "TESSERA_TEST_STEPS="+steps, "TESSERA_TEST_KILL="+fatal)
			w.must(fakegpu.Remap(w.machine(), 1, fakegpu.Remapping{Uncorrectable: 1, Pending: true}))
			w.dies(t, fatal, steps)
			w.open(shared.agent)
			w.marked("found again or remembered", gpu.SignalRemapPending, w.on("NoSchedule", 1))
			w.kubeletKnows("kubelet knows", w.on("sick", 1))
			w.agent.kill()
			w.must(fakegpu.Reboot(w.machine()))
			w.open(shared.agent)
			w.marked("well", gpu.SignalRemapPending, nowhere)
			w.agent.kill()
		})
	}
	// An event is reported by the driver once: after it is saved, it must not be lost.
	for _, moment := range []string{"after save-health", "before report-health", "after report-health"} {
		t.Run("event-"+strings.ReplaceAll(moment, " ", "-"), func(t *testing.T) {
			fatal := fmt.Sprintf("%s of %s XID 95", moment, w.whole(0).GPU)
			w.open(shared.crashing, "TESSERA_TEST_STEPS="+steps, "TESSERA_TEST_KILL="+fatal)
			w.hears(0)
			w.must(fakegpu.XID(w.machine(), fakegpu.On(0), 95))
			w.dies(t, fatal, steps)
			w.open(shared.agent)
			w.marked("remembered", gpu.SignalXID, w.on("95 NoSchedule", 0))
			w.agent.kill()
			w.must(fakegpu.Reboot(w.machine()))
			w.open(shared.agent)
			w.marked("well", gpu.SignalXID, nowhere)
			w.agent.kill()
		})
	}
}

// dies waits until the agent has exited at the moment.
func (w *sickbay) dies(t *testing.T, fatal, steps string) {
	t.Helper()
	select {
	case <-w.agent.ended:
	case <-time.After(harness.Patience):
		text, _ := os.ReadFile(steps)
		t.Fatalf("%v at %q: %s", errLived, fatal, text)
	}
}

// loss is a case of GPUs that fall off the bus during Prepare.
type loss struct {
	victim
	moment string
}

func (l loss) String() string { return fmt.Sprintf("%s lost %s", l.name, l.moment) }

// TestLostDuringPrepare removes the victim's GPU at every moment of a Prepare. The call returns an error that names the
// GPU, or the claim is prepared; it does not hang. The neighbor's GPU is not affected, and after a reboot nothing is
// left.
func TestLostDuringPrepare(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	v := victim{name: "slice", carved: []string{"GPU 1: 14 at 2"}, devices: func(s *stage) []gpu.Device { return []gpu.Device{s.slice(1, 14, 2)} }}
	s := newStage(t, v)
	moments := s.life(v)
	last := slices.Index(moments, "after record-prepared")
	if last < 0 {
		t.Fatalf("no moment at which the claim is prepared: %q", moments)
	}
	var cases []loss
	for _, moment := range moments[:last] {
		cases = append(cases, loss{v, moment})
	}
	for _, c := range cases {
		if err := s.lose(c); err != nil {
			t.Errorf("%v: %v", c, err)
			s = newStage(t, v)
		}
	}
	t.Logf("%d moments", len(cases))
}

// lose runs a case.
func (s *stage) lose(c loss) error {
	s.t.Helper()
	claim := s.claimOf(c.victim)
	_ = os.Remove(s.steps())
	moment := strings.ReplaceAll(c.moment, anyClaim, claim.GetUid()) + s.of(claim)
	a := s.start(shared.crashing, "losing", "TESSERA_TEST_STEPS="+s.steps(), "TESSERA_TEST_STOP="+moment)
	k := a.connect()
	done := make(chan error, 1)
	go func() { _, err := k.prepare(claim); done <- err }()
	s.eventually("it stops "+moment, func(context.Context) error { return s.reached(moment) })
	if err := fakegpu.Lose(s.machine(), 1); err != nil {
		return err
	}
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	wrong := <-done
	switch {
	case wrong == nil:
		wrong = k.unprepare(claim)
	case strings.Contains(wrong.Error(), s.whole(1).GPU):
		wrong = nil
	default:
		wrong = fmt.Errorf("the error does not name the GPU: %w", wrong)
	}
	beside := s.claim(fmt.Sprintf("beside-%d", s.cases), []gpu.Device{s.slice(0, 19, 3)})
	k.mustPrepare(beside)
	k.mustUnprepare(beside)
	a.kill()
	if err := errors.Join(wrong, fakegpu.Reset(s.machine())); err != nil {
		return err
	}
	return s.live(c.victim, claim, ending{"given up", (*stage).giveUp})
}

// reached returns an error until the moment has been recorded.
func (s *stage) reached(moment string) error {
	text, err := os.ReadFile(s.steps())
	if err == nil && !slices.Contains(strings.Split(string(text), "\n"), moment) {
		err = fmt.Errorf("not among %q", text)
	}
	return err
}

// TestLostGPUIsRefused checks that a claim on a GPU that does not answer is rejected with a reason, and prepared after
// the GPU is back.
func TestLostGPUIsRefused(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", brief)
	w.open(shared.agent)
	w.must(fakegpu.Lose(w.machine(), 1))
	w.marked("lost", gpu.SignalLost, w.on("NoSchedule", 1))
	claim := w.claim("claim", []gpu.Device{w.whole(1)})
	if _, err := w.kubelet.prepare(claim); err == nil || !strings.Contains(err.Error(), w.whole(1).GPU) {
		t.Errorf("prepare on a lost GPU: %v", err)
	}
	w.must(fakegpu.Reset(w.machine()))
	w.kubelet.eventuallyPrepares("it answers again", claim)
	w.kubelet.mustUnprepare(claim)
	w.isClean()
}

// storm is the number of XIDs per second, stormXID their code. In each of the gusts, and between two of them, the given
// number of claims is prepared.
const (
	storm    = 1000
	stormXID = 48
	gusts    = 10
	gust     = 20
)

// TestStormDoesNotStarvePrepare checks that a storm of events does not delay kubelet's calls.
func TestStormDoesNotStarvePrepare(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", "")
	w.open(shared.agent)
	claim := w.claim("claim", []gpu.Device{w.slice(0, 19, 0)})
	measure := func(took []time.Duration) []time.Duration {
		for range gust {
			start := time.Now()
			w.kubelet.mustPrepare(claim)
			took = append(took, time.Since(start))
			w.kubelet.mustUnprepare(claim)
		}
		return took
	}
	quantile := func(took []time.Duration, q float64) time.Duration {
		slices.Sort(took)
		return took[min(len(took)-1, int(q*float64(len(took))))].Round(10 * time.Microsecond)
	}
	var calm, wild []time.Duration
	count, long := 0, time.Duration(0)
	for range gusts { // alternating, so that other load affects both
		calm = measure(calm)
		ctx, end := context.WithCancel(t.Context())
		sent, begin := make(chan int, 1), time.Now()
		go func() {
			posted, _ := fakegpu.Storm(ctx, w.machine(), fakegpu.On(1), stormXID, storm) // the count tells
			sent <- posted
		}()
		wild = measure(wild)
		end()
		count, long = count+<-sent, long+time.Since(begin)
	}
	t.Logf("Prepare in calm: p50 %v, p99 %v; under %d XIDs in %v: p50 %v, p99 %v; %d each", quantile(calm, .5), quantile(calm, .99),
		count, long, quantile(wild, .5), quantile(wild, .99), len(calm))
	if count < int(storm*long.Seconds()/2) {
		t.Errorf("the storm was of %d XIDs only", count)
	}
	// Prepare may be slower, but not by an order of magnitude. The limit is wide because other tests may run.
	if worst := quantile(wild, .5); worst > 10*quantile(calm, .5)+50*time.Millisecond {
		t.Errorf("half of the Prepares took longer than %v, in calm %v", worst, quantile(calm, .5))
	}
	w.marked("told", gpu.SignalXID, w.on(fmt.Sprintf("%d NoSchedule", stormXID), 1))
	w.isClean()
}

// TestStalledDriver: while a MIG device is created for a claim, the driver answers for no GPU, for more than ten seconds. No GPU is lost.
func TestStalledDriver(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	i := newInstaller(n)
	i.create()
	_, k := n.run()
	n.must(fakegpu.Latency(n.machine(), 12*time.Second, 0))
	n.must(fakegpu.Stall(n.machine()))
	claim := n.claim("mig", []gpu.Device{n.slice(0, 19, 0)})
	k.eventuallyPrepares("a MIG device", claim)
	n.must(fakegpu.Reset(n.machine()))
	k.mustUnprepare(claim)
	if s, err := i.agent(t.Context()); err != nil || len(s.Faults) > 0 {
		t.Errorf("faults %+v, %v, want none", s.Faults, err)
	}
}
