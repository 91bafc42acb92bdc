package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// NVML error codes.
const (
	errorUnknown = 999
	errorInUse   = 19
)

// fault is a case of the table of failing calls: one call of NVML fails once.
type fault struct {
	victim
	number int
	name   string
	code   int
}

func (f fault) String() string {
	return fmt.Sprintf("%s: call %d, %s, fails with %d", f.victim.name, f.number, f.name, f.code)
}

// calls returns the NVML calls of a clean run, from the start of an agent to the end of a claim.
func (s *stage) calls(v victim) []string {
	s.t.Helper()
	log := filepath.Join(s.dir, "calls")
	if err := s.fail(v, "FAKE_NVML_LOG="+log); err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	s.must(err)
	return strings.Fields(string(text))
}

// fail prepares and unprepares a claim with an agent in the environment, retrying errors as kubelet does, and returns
// any deviation.
func (s *stage) fail(v victim, environment ...string) error {
	s.t.Helper()
	a := s.start(shared.product, "agent", environment...)
	defer a.kill()
	k := a.connect()
	claim := s.claimOf(v)
	var devices []*drapb.Device
	if err := s.retry(func() (err error) {
		devices, err = k.prepare(claim)
		return err
	}); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := s.promised(v, devices); err != nil {
		return err
	}
	if err := s.retry(func() error { return k.unprepare(claim) }); err != nil {
		return fmt.Errorf("unprepare: %w", err)
	}
	return s.restored()
}

// retry repeats a call until it succeeds.
func (s *stage) retry(call func() error) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), harness.Patience)
	defer cancel()
	return poll(ctx, func(context.Context) error { return call() })
}

// TestEveryNVMLFunctionFailsOnce fails each function of NVML at its first call, which for most functions happens while
// the agent starts, and at its last one. The tests of package prepare fail every single call of a claim's life.
func TestEveryNVMLFunctionFailsOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	v := victims()[0]
	calls := newStage(t, v).calls(v)
	if !slices.Contains(calls, "nvmlGpuInstanceDestroy") || !slices.Contains(calls, "nvmlInit_v2") && !slices.Contains(calls, "nvmlInitWithFlags") {
		t.Errorf("a clean run makes the calls %q", calls)
	}
	first, last := map[string]int{}, map[string]int{}
	for i, call := range calls {
		if _, seen := first[call]; !seen {
			first[call] = i
		}
		last[call] = i
	}
	var cases []fault
	for i, call := range calls {
		if i != first[call] && i != last[call] {
			continue
		}
		cases = append(cases, fault{v, i + 1, call, errorUnknown})
		if strings.HasSuffix(call, "Destroy") {
			cases = append(cases, fault{v, i + 1, call, errorInUse})
		}
	}
	table(t, cases, func(s *stage, f fault) error {
		return s.fail(f.victim, fmt.Sprintf("FAKE_NVML_FAIL=%d:%d", f.number, f.code))
	})
}
