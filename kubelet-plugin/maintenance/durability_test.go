package maintenance

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const gateOfDisk = "plugin/maintenance"

func gateOn(files disk.FileSystem, dir string) (*Gate, error) {
	return OpenGate(files, filepath.Join(dir, gateOfDisk), namespace, func() bool { return true })
}

// viewGate is what the next agent finds.
func viewGate(dir string) (string, error) {
	g, err := gateOn(nil, dir)
	if err != nil {
		return "", err
	}
	closure, err := g.Closure()
	if err != nil {
		return "", err
	}
	outcome, err := g.loadOutcome("reset")
	if err != nil || outcome == nil {
		return closure.ID, err
	}
	return fmt.Sprintf("%s, %s: %s", closure.ID, outcome.ID, outcome.State), nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A maintenance that was acknowledged, and the outcome of a reset, survive a power failure: otherwise claims are admitted meanwhile, or the GPU is reset
// again. Each sync is needed.
func TestGateSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	disktest.MutateSyncs(t, func(d *disktest.Disk) {
		g, err := gateOn(d, d.Dir())
		must(t, err)
		for _, do := range []func() error{
			func() error { return g.saveOutcome(Outcome{ID: "reset", State: v1alpha1.RemediationStateFailed}) },
			func() error { return g.setClosure(Closure{ID: "maintenance"}) },
			func() error { return g.saveOutcome(Outcome{ID: "reset", State: v1alpha1.RemediationStateReset}) },
			func() error { return g.setClosure(Closure{}) },
		} {
			must(t, do())
			d.Returned()
		}
	}, viewGate)
}

func TestGateWithDiskFaults(t *testing.T) {
	t.Parallel()
	closed := func(g *Gate) error { return g.setClosure(Closure{ID: "maintenance"}) }
	for name, operation := range map[string]struct{ before, do func(g *Gate) error }{
		"open":   {nil, func(*Gate) error { return nil }},
		"close":  {nil, closed},
		"reopen": {closed, func(g *Gate) error { return g.setClosure(Closure{}) }},
		"enter": {nil, func(g *Gate) error {
			leave, err := g.Enter(t.Context(), prepare.Ref{UID: "uid", Namespace: "team", Name: "a"}, []string{"gpu-0"})
			if err == nil {
				leave()
			}
			return err
		}},
		"drained": {closed, func(g *Gate) error {
			_, err := g.drained("gpu-0")
			return err
		}},
		"outcome": {closed, func(g *Gate) error { return g.saveOutcome(Outcome{ID: "reset"}) }},
		"touch an outcome": {
			func(g *Gate) error { return g.saveOutcome(Outcome{ID: "reset"}) },
			func(g *Gate) error { return g.pruneOutcomes([]Hold{{ID: "reset"}}, nil) },
		},
		"remove an outcome": {
			func(g *Gate) error {
				past := time.Now().Add(-2 * outcomeRetention)
				if err := g.saveOutcome(Outcome{ID: "reset"}); err != nil {
					return err
				}
				return disk.Or(g.files).Chtimes(g.outcomePath("reset"), past, past)
			},
			func(g *Gate) error { return g.pruneOutcomes(nil, nil) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
				open := func() (*Gate, error) {
					g, err := gateOn(d, d.Dir())
					if err == nil {
						g.once.Do(func() { close(g.read) })
					}
					return g, err
				}
				return disktest.Case{
					Before: func() error {
						if operation.before == nil {
							return nil
						}
						g, err := open()
						if err != nil {
							return err
						}
						return operation.before(g)
					},
					Do: func() error {
						g, err := open()
						if err != nil {
							return err
						}
						return operation.do(g)
					},
					State: func() (string, error) { return viewGate(d.Dir()) },
				}
			})
			t.Logf("%d faults", tried)
		})
	}
}
