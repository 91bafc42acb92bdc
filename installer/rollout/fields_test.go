package rollout_test

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // embeds the time zone database for machines without one

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/rollout"
)

// noon is on a Wednesday.
var noon = time.Date(2026, time.November, 18, 12, 0, 0, 0, time.UTC)

// fleet returns eight nodes that must change their driver.
func fleet() rollout.Fleet {
	f := rollout.Fleet{Now: noon, Policy: v1alpha1.UpgradePolicy{}.Complete()}
	for i := range 8 {
		f.Nodes = append(f.Nodes, rollout.Node{
			Name: fmt.Sprintf("n%d", i), Wanted: "new", Current: "old", LastGood: "old",
			Phase: v1alpha1.PhaseReady, Since: noon.Add(-time.Hour), Available: true,
		})
	}
	return f
}

// failed returns a node that rolled back to its old driver after the given number of attempts.
func failed(n *rollout.Node, count int32, ago time.Duration) {
	n.Phase, n.Attempt = v1alpha1.PhaseRolledBack, &v1alpha1.Attempt{Digest: "new", Count: count, Reason: "DriverFailed", Last: metav1.NewTime(noon.Add(-ago))}
}

// done returns a node that has had the new driver for the given time.
func done(n *rollout.Node, ago time.Duration) {
	n.Current, n.LastGood, n.Since = "new", "new", noon.Add(-ago)
}

// Each field of the upgrade policy limits how many nodes may start.
func TestFieldsDecideWhoBegins(t *testing.T) {
	waves := func(f *rollout.Fleet) {
		f.Policy.Canary, f.Policy.MaxParallel = new(intstr.FromInt32(0)), new(int32(0))
	}
	window := func(f *rollout.Fleet) {
		f.Policy.Window = &v1alpha1.MaintenanceWindow{Start: "10:00", Duration: metav1.Duration{Duration: 4 * time.Hour}, TimeZone: "UTC"}
	}
	for _, c := range []struct {
		field         string
		given         func(*rollout.Fleet)
		change        func(*v1alpha1.UpgradePolicy)
		before, after int
	}{
		{"auto", waves, func(p *v1alpha1.UpgradePolicy) { p.Auto = new(false) }, 2, 0},
		{"canary", func(f *rollout.Fleet) { f.Policy.MaxParallel = new(int32(0)) },
			func(p *v1alpha1.UpgradePolicy) { p.Canary = new(intstr.FromInt32(2)) }, 1, 2},
		{"soak", func(f *rollout.Fleet) { done(&f.Nodes[0], 3*time.Minute) },
			func(p *v1alpha1.UpgradePolicy) { p.Soak = &metav1.Duration{Duration: time.Minute} }, 0, 1},
		{"maxParallel", waves, func(p *v1alpha1.UpgradePolicy) { p.MaxParallel = new(int32(1)) }, 2, 1},
		{"maxUnavailable", waves, func(p *v1alpha1.UpgradePolicy) { p.MaxUnavailable = new(intstr.FromString("50%")) }, 2, 4},
		{"failureBudget", func(f *rollout.Fleet) { failed(&f.Nodes[0], 2, time.Hour); failed(&f.Nodes[1], 2, time.Hour) },
			func(p *v1alpha1.UpgradePolicy) { p.FailureBudget = new(intstr.FromInt32(2)) }, 0, 1},
		{"attempts", func(f *rollout.Fleet) { f.Nodes = f.Nodes[:1]; failed(&f.Nodes[0], 2, time.Hour) },
			func(p *v1alpha1.UpgradePolicy) { p.Attempts = new(int32(3)) }, 0, 1},
		{"retryAfter", func(f *rollout.Fleet) { f.Nodes = f.Nodes[:1]; failed(&f.Nodes[0], 1, 3*time.Minute) },
			func(p *v1alpha1.UpgradePolicy) { p.RetryAfter = &metav1.Duration{Duration: time.Minute} }, 0, 1},
		{"window.start", window, func(p *v1alpha1.UpgradePolicy) { p.Window.Start = "13:00" }, 1, 0},
		{"window.duration", window, func(p *v1alpha1.UpgradePolicy) { p.Window.Duration.Duration = time.Hour }, 1, 0},
		{"window.days", window, func(p *v1alpha1.UpgradePolicy) { p.Window.Days = []string{"Sun"} }, 1, 0},
		{"window.timeZone", window, func(p *v1alpha1.UpgradePolicy) { p.Window.TimeZone = "Asia/Tokyo" }, 1, 0},
	} {
		t.Run(c.field, func(t *testing.T) {
			f := fleet()
			c.given(&f)
			before := len(rollout.Next(f).Grant)
			c.change(&f.Policy)
			after := len(rollout.Next(f).Grant)
			if before != c.before || after != c.after {
				t.Errorf("%d nodes begin, and with the field %d; want %d and %d", before, after, c.before, c.after)
			}
		})
	}
}

// inUse makes a node one whose driver's pod cannot start while pods use the loaded driver.
func inUse(n *rollout.Node) {
	n.Wanted, n.Phase, n.Change, n.DriverRestart = n.Current, v1alpha1.PhaseFailed, true, true
}

// TestDriversInUseKeepAllLimits checks that the restarts of a whole fleet's drivers, as after a deletion of all driver pods, are limited like an upgrade:
// nodes whose pods keep their GPUs are in service, and a restart that fails holds the others.
func TestDriversInUseKeepAllLimits(t *testing.T) {
	granted := func(n *rollout.Node, phase v1alpha1.NodePhase) { n.Change, n.Changing, n.Phase = false, true, phase }
	for name, c := range map[string]struct {
		given func(*rollout.Fleet)
		want  int
	}{
		"maxUnavailable": {func(f *rollout.Fleet) {
			f.Policy.Canary, f.Policy.MaxParallel = new(intstr.FromInt32(0)), new(int32(0))
		}, 2},
		"not automatic":    {func(f *rollout.Fleet) { f.Policy.Auto = new(false) }, 0},
		"the canary first": {func(f *rollout.Fleet) { f.Policy.MaxParallel = new(int32(0)) }, 1},
		"the canary returns to service": {func(f *rollout.Fleet) {
			f.Policy.MaxParallel = new(int32(0))
			done(&f.Nodes[7], time.Hour) // it has had the driver for long, and was not restarted
			f.Nodes[7].Wanted, f.Nodes[7].Current, f.Nodes[7].LastGood = "old", "old", "old"
			f.Nodes[7].Change, f.Nodes[7].DriverRestart, f.Nodes[7].Phase = false, false, v1alpha1.PhaseReady
			f.Nodes[0].Change, f.Nodes[0].DriverRestart, f.Nodes[0].Phase = false, false, v1alpha1.PhaseUpgrading
			f.Status = &v1alpha1.RolloutStatus{Digest: "driver-restart", Stage: v1alpha1.RolloutCanary, Since: metav1.NewTime(noon.Add(-time.Minute))}
		}, 0},
		"the drivers of two nodes do not start after the drain": {func(f *rollout.Fleet) {
			f.Policy.Canary, f.Policy.MaxUnavailable = new(intstr.FromInt32(0)), new(intstr.FromString("100%"))
			granted(&f.Nodes[0], v1alpha1.PhaseFailed)
			granted(&f.Nodes[1], v1alpha1.PhaseFailed)
		}, 0},
	} {
		f := fleet()
		for i := range f.Nodes {
			inUse(&f.Nodes[i])
		}
		c.given(&f)
		if got := rollout.Next(f); len(got.Grant) != c.want {
			t.Errorf("%s: %d nodes begin (%v), want %d; %+v", name, len(got.Grant), got.Grant, c.want, got.Status)
		}
	}
}
