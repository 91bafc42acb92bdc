package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The tables below kill the agent, or let the driver fail it, at every moment of a claim's life. The
// moments come from a clean run, so that a step that is added later is a case from then on. On the
// same GPU lives the claim of a neighbour, which must not notice anything.

// stage is a node with a neighbour on it, used for one case after another as long as each leaves it
// as it was.
type stage struct {
	*node
	neighbour *drapb.Claim
	// before is what belongs to the neighbour alone.
	before snapshot
	cases  int
}

// snapshot is everything that belongs to claims on a node.
type snapshot struct {
	Instances []string
	Files     map[string]string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{node: newNode(t, "h100x2")}
	a, k := s.run()
	s.neighbour = s.claim("neighbour", []gpu.Device{s.slice(0, 19, 0)})
	k.mustPrepare(s.neighbour)
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
	for _, path := range s.files(s.dir, "p/*/claims/*", "cdi/tessera-claim-*") {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the agent works on
		}
		s.must(err)
		shot.Files[filepath.Base(path)] = string(text)
	}
	return shot
}

// victim makes the claim of the next case: a slice beside the neighbour's and one on a GPU of which
// MIG is off.
func (s *stage) victim() *drapb.Claim {
	s.t.Helper()
	s.cases++
	return s.claim(fmt.Sprintf("victim-%d", s.cases), []gpu.Device{s.slice(0, 9, 4), s.slice(1, 14, 2)})
}

// promised returns why the victim is not what it was promised; nil when it is.
func (s *stage) promised(devices []*drapb.Device) error {
	got := placements(s.truth())
	want := []string{"GPU 0: 19 at 0", "GPU 0: 9 at 4", "GPU 1: 14 at 2"}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("prepared, but the instances are (-want +got):\n%s", diff)
	}
	if len(devices) != 2 {
		return fmt.Errorf("prepared with %d devices, want 2", len(devices))
	}
	s.container(devices)
	return nil
}

// restored returns what differs from the time before the victim.
func (s *stage) restored() error {
	if diff := cmp.Diff(s.before, s.snapshot()); diff != "" {
		return fmt.Errorf("left behind or changed (-before +after):\n%s", diff)
	}
	return nil
}

// ending is what happens to the claim after the agent came back; every claim is taken back at last.
type ending struct {
	name string
	then func(*stage, *kubelet, *drapb.Claim) error
}

func endings() []ending {
	return []ending{
		{"prepared again", (*stage).again},
		{"given up", func(*stage, *kubelet, *drapb.Claim) error { return nil }},
		{"left alone", (*stage).alone},
	}
}

// again prepares the claim as kubelet does when it got no answer.
func (s *stage) again(k *kubelet, claim *drapb.Claim) error {
	devices, err := k.prepare(claim)
	if err != nil {
		return fmt.Errorf("prepare after the crash: %w", err)
	}
	return s.promised(devices)
}

// alone waits until the agent has by itself taken back what was not finished.
func (s *stage) alone(_ *kubelet, claim *drapb.Claim) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	return poll(ctx, func(context.Context) error {
		if _, err := os.Stat(s.recordOf(claim.GetUid())); err == nil && strings.Contains(s.record(claim.GetUid()), `"state":"Prepared"`) {
			return nil
		}
		return s.restored()
	})
}

// crash lets the agent die at the moment and returns what is wrong after it came back.
func (s *stage) crash(moment string, end ending, environment ...string) error {
	s.t.Helper()
	claim := s.victim()
	moment += " of " + claim.GetNamespace() + "/" + claim.GetName()
	environment = append(environment, "TESSERA_TEST_STEPS="+filepath.Join(s.dir, "steps"), "TESSERA_TEST_KILL="+moment)
	a := s.start(shared.crashing, "dying", environment...)
	k := a.connect()
	if _, err := k.prepare(claim); err == nil {
		err = k.unprepare(claim)
		if err == nil {
			a.kill()
			return errors.New("lived through its death")
		}
	}
	<-a.ended

	a = s.start(shared.agent, "heir")
	defer a.kill()
	k = a.connect()
	if err := end.then(s, k, claim); err != nil {
		return err
	}
	if err := k.unprepare(claim); err != nil {
		return fmt.Errorf("unprepare after the crash: %w", err)
	}
	return s.restored()
}

// cleanRun returns the moments of the victim's life without a crash.
func (s *stage) cleanRun() []string {
	s.t.Helper()
	steps := filepath.Join(s.dir, "steps")
	a := s.start(shared.crashing, "clean", "TESSERA_TEST_STEPS="+steps)
	k := a.connect()
	claim := s.victim()
	s.must(s.promised(k.mustPrepare(claim)))
	k.mustUnprepare(claim)
	a.kill()
	s.must(s.restored())
	text, err := os.ReadFile(steps)
	s.must(err)
	var moments []string
	for line := range strings.Lines(string(text)) {
		if moment, ours := strings.CutSuffix(strings.TrimSpace(line), " of default/"+claim.GetName()); ours {
			moments = append(moments, moment)
		}
	}
	return moments
}

// score counts the cases of a table.
type score struct{ tried, survived atomic.Int32 }

// table runs the cases on several stages at once. A stage that a case left in disorder is replaced.
func table[Case fmt.Stringer](t *testing.T, cases []Case, try func(*stage, Case) error) {
	const workers = 3
	var score score
	t.Run("table", func(t *testing.T) {
		for worker := range workers {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				var s *stage
				for i := worker; i < len(cases); i += workers {
					if s == nil {
						s = newStage(t)
					}
					score.tried.Add(1)
					if err := try(s, cases[i]); err != nil {
						t.Errorf("%v: %v", cases[i], err)
						s = nil
						continue
					}
					score.survived.Add(1)
				}
			})
		}
	})
	t.Logf("%d cases tried, %d survived", score.tried.Load(), score.survived.Load())
}

// death is a case of the table of crashes.
type death struct {
	moment string
	ending
}

func (d death) String() string { return "killed " + d.moment + ", then " + d.name }

func TestKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	moments := newStage(t).cleanRun()
	for _, must := range []string{"before record-preparing", "after record-prepared", "before delete-record"} {
		if !slices.Contains(moments, must) {
			t.Errorf("no moment %q in a clean run: %q", must, moments)
		}
	}
	var cases []death
	for _, moment := range moments {
		for _, end := range endings() {
			cases = append(cases, death{moment, end})
		}
	}
	table(t, cases, func(s *stage, d death) error { return s.crash(d.moment, d.ending) })
}

// TestTheTableNoticesALostRecord takes away the record that is written before the first side effect.
func TestTheTableNoticesALostRecord(t *testing.T) {
	s := newStage(t)
	moments := s.cleanRun()
	created := slices.IndexFunc(moments, func(m string) bool { return strings.HasPrefix(m, "after create-instance") })
	if created < 0 {
		t.Fatalf("no instance is created in %q", moments)
	}
	err := s.crash(moments[created], endings()[1], "TESSERA_TEST_FORGET=yes")
	if err == nil || !strings.Contains(err.Error(), "left behind") {
		t.Errorf("without the first record the case ends with: %v", err)
	}
}
