package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// The tables below kill the agent, or let the driver fail, at every moment of a claim's life. The moments are recorded
// in a clean run, so that new steps are covered automatically. What happens to the claim after the crash alternates
// from moment to moment: the tests of package prepare combine every moment with every ending, in one process. The claim
// of a neighbor on the same GPU must not be affected.

// stage is a node with a neighbor claim. It is reused for the next case if a case leaves it unchanged.
type stage struct {
	*node
	neighbour *drapb.Claim
	// before is the state with the neighbors only.
	before snapshot
	cases  int
	// beside has the names of the neighbors, daemons runs the MPS daemons.
	beside  string
	daemons *harness.Daemons
}

// snapshot is everything on a node that belongs to claims.
type snapshot struct {
	Instances []string
	Files     map[string]string
	// Modes are GPU settings that differ from the default, Daemons the start times of MPS daemons.
	Modes   []string
	Daemons map[string]string
}

// newStage creates a node with the common neighbor and those of this victim.
func newStage(t *testing.T, v victim) *stage {
	t.Helper()
	s := &stage{node: newNode(t, "h100x2"), beside: v.beside}
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, resourceapi.DRAAdminNamespaceLabelKey)
	_, err := shared.client.CoreV1().Namespaces().Patch(t.Context(), metav1.NamespaceDefault, types.MergePatchType, label, metav1.PatchOptions{})
	s.must(err)
	s.daemons, err = s.host.RunDaemons(context.Background(), shared.product)
	s.must(err)
	t.Cleanup(s.daemons.Stop)
	a, k := s.run()
	s.neighbour = s.claim("neighbour", []gpu.Device{s.slice(0, 19, 0)})
	k.mustPrepare(s.neighbour)
	if v.beside != "" {
		k.mustPrepare(s.claim("beside", v.devices(s), v.neighbour...))
	}
	a.kill()
	s.before = s.snapshot()
	return s
}

func (s *stage) snapshot() snapshot {
	s.t.Helper()
	state := s.truth()
	shot := snapshot{Files: map[string]string{}}
	for _, g := range state.GPUs {
		for _, i := range g.Instances {
			shot.Instances = append(shot.Instances, fmt.Sprintf("GPU %d: %v", g.Index, i))
		}
	}
	shot.Modes, shot.Daemons = modes(state), s.serving()
	for _, path := range s.files(s.dir, "p/*/claims/*", "cdi/tessera-claim-*") {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the agent continues
		}
		s.must(err)
		shot.Files[filepath.Base(path)] = string(text)
	}
	return shot
}

// victim is a claim that exists when the agent is killed.
type victim struct {
	name    string
	devices func(*stage) []gpu.Device
	// carved are the expected MIG instances, modes the expected GPU settings, serves the number of MPS daemons.
	carved, modes []string
	serves        int
	// changes configure its claim, neighbour the claim of a neighbor on the same devices.
	changes, neighbour []change
	beside             string
}

// played returns the victim of a case.
func (v victim) played() victim { return v }

// victims returns claims with a MIG device on the neighbor's GPU and on a GPU with MIG mode off, and a claim of a whole
// GPU.
func victims() []victim {
	return []victim{
		{
			name: "slices", carved: []string{"GPU 0: 9 at 4", "GPU 1: 14 at 2"},
			devices: func(s *stage) []gpu.Device { return []gpu.Device{s.slice(0, 9, 4), s.slice(1, 14, 2)} },
		},
		{name: "whole", devices: func(s *stage) []gpu.Device { return []gpu.Device{s.whole(1)} }},
	}
}

// claimOf creates the claim of the next case.
func (s *stage) claimOf(v victim) *drapb.Claim {
	s.t.Helper()
	s.cases++
	return s.claim(fmt.Sprintf("%s-%d", strings.ToLower(strings.ReplaceAll(v.name, " ", "-")), s.cases), v.devices(s), v.changes...)
}

// promised returns an error if the victim does not have its expected devices and settings.
func (s *stage) promised(v victim, devices []*drapb.Device) error {
	want := sorted(append([]string{"GPU 0: 19 at 0"}, v.carved...))
	if diff := cmp.Diff(want, placements(s.truth())); diff != "" {
		return fmt.Errorf("prepared, but the instances are (-want +got):\n%s", diff)
	}
	if got, want := len(devices), len(v.devices(s)); got != want {
		return fmt.Errorf("prepared with %d devices, want %d", got, want)
	}
	s.container(devices)
	if diff := cmp.Diff(v.modes, modes(s.truth())); diff != "" {
		return fmt.Errorf("prepared, but the GPUs' modes are (-want +got):\n%s", diff)
	}
	serving := s.serving()
	for name, since := range s.before.Daemons {
		if serving[name] != since {
			return fmt.Errorf("prepared, but the daemon %s of the neighbour serves since %q, not %q", name, serving[name], since)
		}
	}
	if len(serving) != v.serves {
		return fmt.Errorf("prepared with the MPS daemons %v, want %d", serving, v.serves)
	}
	return nil
}

// restored returns the difference from the state before the victim.
func (s *stage) restored() error {
	if diff := cmp.Diff(s.before, s.snapshot()); diff != "" {
		return fmt.Errorf("left behind or changed (-before +after):\n%s", diff)
	}
	return nil
}

// ending is what happens to the claim after the restart of the agent. Every claim is finally unprepared.
type ending struct {
	name string
	then func(*stage, *kubelet, victim, *drapb.Claim) error
}

func endings() []ending {
	return []ending{{"prepared again", (*stage).again}, {"given up", (*stage).giveUp}, {"left alone", (*stage).leaveAlone}}
}

// again prepares the claim again, as kubelet does without an answer.
func (s *stage) again(k *kubelet, v victim, claim *drapb.Claim) error {
	devices, err := k.prepare(claim)
	if err != nil {
		return fmt.Errorf("prepare after the crash: %w", err)
	}
	return s.promised(v, devices)
}

// giveUp simulates a pod that was deleted meanwhile: kubelet only unprepares the claim.
func (s *stage) giveUp(*kubelet, victim, *drapb.Claim) error { return nil }

// leaveAlone waits until the agent has removed the incomplete claim without a call.
func (s *stage) leaveAlone(_ *kubelet, _ victim, claim *drapb.Claim) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), harness.Patience)
	defer cancel()
	return poll(ctx, func(context.Context) error {
		if text, err := os.ReadFile(s.recordOf(claim.GetUid())); err == nil && strings.Contains(string(text), `"state":"Prepared"`) {
			return nil
		}
		return s.restored()
	})
}

// dying starts an agent that exits at the given moment of the claim's life. Without a moment it only records the
// moments.
func (s *stage) dying(claim *drapb.Claim, moment string, environment ...string) *agent {
	s.t.Helper()
	_ = os.Remove(s.steps())
	fatal := strings.ReplaceAll(moment, anyClaim, claim.GetUid()) + s.of(claim)
	return s.start(shared.crashing, "dying", append(environment, "TESSERA_TEST_STEPS="+s.steps(), "TESSERA_TEST_KILL="+fatal)...)
}

func (s *stage) steps() string { return filepath.Join(s.dir, "steps") }

// of returns the suffix of the claim's moments.
func (s *stage) of(claim *drapb.Claim) string {
	return " of " + claim.GetNamespace() + "/" + claim.GetName()
}

// moments returns the recorded moments of the claim.
func (s *stage) moments(claim *drapb.Claim) []string {
	s.t.Helper()
	text, err := os.ReadFile(s.steps())
	s.must(err)
	var moments []string
	for line := range strings.Lines(string(text)) {
		if moment, ours := strings.CutSuffix(strings.TrimSpace(line), s.of(claim)); ours {
			moments = append(moments, strings.ReplaceAll(moment, claim.GetUid(), anyClaim))
		}
	}
	return moments
}

// anyClaim replaces the UID of a case's claim in the names of its daemons.
const anyClaim = "UID"

// errLived is returned if an agent did not reach the moment at which it should exit.
var errLived = errors.New("lived through its death")

// die lets an agent exit at the moment while kubelet prepares and unprepares the claim. While the agent runs, failed
// calls are retried, as kubelet does.
func (s *stage) die(claim *drapb.Claim, moment string, environment ...string) error {
	s.t.Helper()
	a := s.dying(claim, moment, environment...)
	k := a.connect()
	ctx, cancel := context.WithTimeout(s.t.Context(), harness.Patience)
	defer cancel()
	for _, call := range []func() error{
		func() error { _, err := k.prepare(claim); return err },
		func() error { return k.unprepare(claim) },
	} {
		err := poll(ctx, func(context.Context) error {
			if err := call(); err != nil {
				return errors.Join(a.Alive(), err)
			}
			return nil
		})
		if errors.Is(err, harness.ErrEnded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	a.kill()
	return errLived
}

// dieAlone lets an agent exit at the moment while it recovers the claim at its start.
func (s *stage) dieAlone(claim *drapb.Claim, moment string) error {
	s.t.Helper()
	a := s.dying(claim, moment)
	select {
	case <-a.ended:
		return nil
	case <-time.After(harness.Patience):
		a.kill()
		return errLived
	}
}

// live restarts the agent, ends the claim and returns any deviation.
func (s *stage) live(v victim, claim *drapb.Claim, end ending) error {
	s.t.Helper()
	a := s.start(shared.product, "heir")
	defer a.kill()
	k := a.connect()
	if err := end.then(s, k, v, claim); err != nil {
		return err
	}
	if err := k.unprepare(claim); err != nil {
		return fmt.Errorf("unprepare after the crash: %w", err)
	}
	return s.restored()
}

// life returns the moments of the victim's life without a crash.
func (s *stage) life(v victim) []string {
	s.t.Helper()
	claim := s.claimOf(v)
	a := s.dying(claim, "")
	k := a.connect()
	s.must(s.promised(v, k.mustPrepare(claim)))
	k.mustUnprepare(claim)
	a.kill()
	s.must(s.restored())
	return s.moments(claim)
}

// undoing returns the moments of the recovery from an agent that exited at the moment.
func (s *stage) undoing(v victim, moment string) []string {
	s.t.Helper()
	claim := s.claimOf(v)
	s.must(s.die(claim, moment))
	a := s.dying(claim, "")
	s.must(s.leaveAlone(nil, v, claim))
	a.kill()
	return s.moments(claim)
}

// table runs the cases on several stages in parallel. A stage that a case has left changed is replaced. Consecutive
// cases of one victim need the fewest stages.
func table[Case interface {
	fmt.Stringer
	played() victim
}](t *testing.T, cases []Case, try func(*stage, Case) error) {
	workers := runtime.GOMAXPROCS(0)
	var tried, survived atomic.Int32
	waiting := make(chan Case, len(cases))
	for _, c := range cases {
		waiting <- c
	}
	close(waiting)
	t.Run("table", func(t *testing.T) {
		for worker := range workers {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				var s *stage
				for c := range waiting {
					if s != nil && s.beside != c.played().beside {
						s.daemons.Stop()
						s = nil
					}
					if s == nil {
						s = newStage(t, c.played())
					}
					tried.Add(1)
					if err := try(s, c); err != nil {
						t.Errorf("%v: %v", c, err)
						s = nil
						continue
					}
					survived.Add(1)
				}
			})
		}
	})
	t.Logf("%d cases tried, %d survived", tried.Load(), survived.Load())
}

// death is a case of the crash tables.
type death struct {
	victim
	// moments are the moments at which consecutive agents exit.
	moments []string
	ending
}

func (d death) String() string {
	return fmt.Sprintf("%s killed %s, then %s", d.victim.name, strings.Join(d.moments, ", then "), d.ending.name)
}

func (d death) play(s *stage) error {
	claim := s.claimOf(d.victim)
	if err := s.die(claim, d.moments[0]); err != nil {
		return err
	}
	for _, moment := range d.moments[1:] {
		if err := s.dieAlone(claim, moment); err != nil {
			return err
		}
	}
	return s.live(d.victim, claim, d.ending)
}

func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	s := newStage(t, victim{})
	var cases []death
	for _, v := range victims() {
		moments := s.life(v)
		for _, must := range []string{"before record-preparing", "after record-prepared", "before delete-record"} {
			if !slices.Contains(moments, must) {
				t.Errorf("no moment %q in a clean run: %q", must, moments)
			}
		}
		for i, moment := range moments {
			cases = append(cases, death{v, []string{moment}, endings()[i%len(endings())]})
		}
	}
	table(t, cases, func(s *stage, d death) error { return d.play(s) })
}

// carved is the moment at which an incomplete claim has the most side effects.
const carved = "before record-prepared"

// TestKilledAgainWhileItRecovers also kills the restarted agent.
func TestKilledAgainWhileItRecovers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	v := victims()[0]
	moments := newStage(t, v).undoing(v, carved)
	if !slices.ContainsFunc(moments, func(m string) bool { return strings.HasPrefix(m, "after destroy-instance") }) {
		t.Errorf("nothing is taken back: %q", moments)
	}
	var cases []death
	for i, moment := range moments {
		cases = append(cases, death{v, []string{carved, moment}, endings()[i%len(endings())]})
	}
	table(t, cases, func(s *stage, d death) error { return d.play(s) })
}

// TestTheTableNoticesALostRecord deletes the record that is written before the first side effect.
func TestTheTableNoticesALostRecord(t *testing.T) {
	t.Parallel()
	s, v := newStage(t, victim{}), victims()[0]
	claim := s.claimOf(v)
	s.must(s.die(claim, carved, "TESSERA_TEST_DROP_RECORD=yes"))
	err := s.live(v, claim, endings()[1])
	if err == nil || !strings.Contains(err.Error(), "left behind") {
		t.Errorf("without the first record the case ends with: %v", err)
	}
}
