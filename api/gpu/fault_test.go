package gpu_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// TestAffects checks on every model which uses a fault affects: all uses for a fault of the whole GPU, those that share memory
// slices for a fault of a MIG device.
func TestAffects(t *testing.T) {
	t.Parallel()
	models, err := catalog.Models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models {
		geometry, err := m.Geometry()
		if err != nil {
			t.Fatal(err)
		}
		uses := gpu.GPU{Geometry: geometry}.AllUses()
		for _, at := range append([]gpu.Use{{}}, uses...) {
			f := gpu.Fault{Placement: at.Placement}
			for _, u := range uses {
				want := true
				switch {
				case u.Shape == gpu.Monitor:
					want = false
				case at.Shape == gpu.MIG && u.Shape == gpu.MIG:
					first, second := at.Placement, u.Placement
					want = first.Start < second.Start+second.Size && second.Start < first.Start+first.Size
				}
				if got := f.Affects(u); got != want {
					t.Fatalf("%s: a fault of %v affects %v: %v", m.Name, at, u, got)
				}
			}
		}
	}
	if (gpu.Fault{}).Affects(gpu.Use{}) {
		t.Error("an idle GPU is no device")
	}
	if !(gpu.Fault{Placement: gpu.Placement{Profile: 19, Start: 99, Size: 1}}).Affects(mig(19, 0, 1)) {
		t.Error("a fault that is nowhere is everywhere")
	}
}

func TestFaultsAffecting(t *testing.T) {
	t.Parallel()
	slice := func(start int) gpu.Placement { return gpu.Placement{Profile: 19, Start: start, Size: 1} }
	g := gpu.GPU{Faults: []gpu.Fault{
		{Signal: gpu.SignalHeat, Severity: gpu.Warning, Since: noon},
		{Signal: gpu.SignalXID, XID: 13, Severity: gpu.Harmless, Since: noon},
		{Signal: gpu.SignalXID, XID: 48, Severity: gpu.Fatal, Since: noon.Add(time.Minute)},
		{Signal: gpu.SignalXID, XID: 79, Severity: gpu.Fatal, Since: noon, Over: noon},
		{Signal: gpu.SignalXID, XID: 94, Severity: gpu.Critical, Since: noon, Placement: slice(0)},
		{Signal: gpu.SignalXID, XID: 95, Severity: gpu.Fatal, Since: noon, Placement: slice(3)},
	}}
	for use, want := range map[gpu.Use]string{
		mig(19, 0, 1):      "[XID 48 XID 94 heat]",
		mig(19, 3, 1):      "[XID 95 XID 48 heat]",
		mig(19, 5, 1):      "[XID 48 heat]",
		whole(gpu.Whole):   "[XID 95 XID 48 XID 94 heat]",
		whole(gpu.MPS):     "[XID 95 XID 48 XID 94 heat]",
		whole(gpu.VFIO):    "[XID 95 XID 48 XID 94 heat]",
		whole(gpu.Monitor): "[]",
	} {
		if got := fmt.Sprint(g.FaultsAffecting(use)); got != want {
			t.Errorf("%v: %s, want %s", use, got, want)
		}
	}
}

// action records an observation, which proves nothing, in a Health.
type action func(gpu.Health) gpu.Health

// placements returns where faults can be: all MIG placements of an H100, and the zero value for the whole GPU.
func placements(tb testing.TB) []gpu.Placement {
	tb.Helper()
	found := []gpu.Placement{{}}
	for _, u := range (gpu.GPU{Geometry: gputest.Geometry(tb, "h100-80")}).AllUses() {
		if u.Shape == gpu.MIG {
			found = append(found, u.Placement)
		}
	}
	return found
}

// anyEvent draws an XID of one of the two GPUs.
func anyEvent(t *rapid.T, at []gpu.Placement, numbers []int) gpu.Event {
	return gpu.Event{
		GPU: rapid.SampledFrom([]string{faulty, other}).Draw(t, "gpu"), Placement: rapid.SampledFrom(at).Draw(t, "placement"),
		XID: rapid.SampledFrom(numbers).Draw(t, "XID"), At: noon.Add(time.Duration(rapid.IntRange(0, 1e6).Draw(t, "at")) * time.Millisecond),
	}
}

// anyAction draws an event or a checkup.
func anyAction(t *rapid.T, at []gpu.Placement, numbers []int) action {
	if rapid.Bool().Draw(t, "event") {
		e := anyEvent(t, at, numbers)
		return func(h gpu.Health) gpu.Health { return h.Note(gpu.Rules{}, e, present) }
	}
	c := gpu.Checkup{
		GPU: rapid.SampledFrom([]string{faulty, other}).Draw(t, "gpu"), UUID: rapid.SampledFrom([]string{"", "GPU-1"}).Draw(t, "UUID"),
		At: noon.Add(time.Duration(rapid.IntRange(0, 1e6).Draw(t, "at")) * time.Millisecond),
	}
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(gpu.Signals()[1:]), 0, 5, rapid.ID).Draw(t, "signals") {
		c.Conditions = append(c.Conditions, gpu.Condition{
			Signal: s, Placement: rapid.SampledFrom(at).Draw(t, "placement"), Present: rapid.Bool().Draw(t, "present"), Links: rapid.IntRange(0, 18).Draw(t, "links"),
		})
	}
	return func(h gpu.Health) gpu.Health { return h.Check(gpu.Rules{}, c, present) }
}

// everyXID returns all numbers of the table and three that are not in it.
func everyXID() []int {
	numbers := []int{1000, 1001, 1002}
	for _, x := range (gpu.Rules{}).Table() {
		numbers = append(numbers, x.Number)
	}
	return numbers
}

// severities returns the worst severity of every device of the two GPUs.
func severities(h gpu.Health, at []gpu.Placement) map[gpu.Device]gpu.Severity {
	bad := map[gpu.Device]gpu.Severity{}
	for _, name := range []string{faulty, other} {
		g := gpu.GPU{Faults: slices.DeleteFunc(slices.Clone(h.Faults), func(f gpu.Fault) bool { return f.GPU != name })}
		for _, p := range at {
			u := gpu.Use{Shape: gpu.MIG, Placement: p}
			if p == (gpu.Placement{}) {
				u.Shape = gpu.Whole
			}
			if affecting := g.FaultsAffecting(u); len(affecting) > 0 {
				bad[gpu.Device{GPU: name, Use: u}] = affecting[0].Severity
			}
		}
	}
	return bad
}

// TestOnlyProofEndsFault checks that recording observations improves no device, even beyond the limit of faults; that it does not
// modify the Health from which the result was derived; and that the number of faults is bounded.
func TestOnlyProofEndsFault(t *testing.T) {
	t.Parallel()
	at, numbers := placements(t), everyXID()
	var full gpu.Health
	for i, number := range append(numbers, numbers...) {
		full = full.Note(gpu.Rules{}, gpu.Event{GPU: faulty, XID: number, Placement: at[i%len(at)], At: noon}, present)
	}
	if len(full.Faults) != 64 {
		t.Fatalf("%d faults are remembered of one GPU, want 64", len(full.Faults))
	}
	rapid.Check(t, func(t *rapid.T) {
		// Half of the runs start at the limit of faults, with every number at every placement.
		h := full
		if rapid.Bool().Draw(t, "healthy") {
			h = gpu.Health{}
		}
		before := severities(h, at)
		for range rapid.IntRange(0, 60).Draw(t, "actions") {
			kept := clone(h)
			next := anyAction(t, at, numbers)(h)
			if !reflect.DeepEqual(kept, h) {
				t.Fatalf("the memory before changed (-before +after):\n%s", cmp.Diff(kept, h))
			}
			after := severities(next, at)
			for d, severity := range before {
				if after[d] < severity {
					t.Fatalf("%s %v was %v and is %v", d.GPU, d.Use, severity, after[d])
				}
			}
			if !slices.IsSortedFunc(next.Faults, order) || len(next.Faults) > 2*64 {
				t.Fatalf("%d faults, sorted: %v", len(next.Faults), slices.IsSortedFunc(next.Faults, order))
			}
			h, before = next, after
		}
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var read gpu.Health
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h, read, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("stored and read (-stored +read):\n%s", diff)
		}
	})
}

// order is the order of Health.Faults, implemented independently.
func order(a, b gpu.Fault) int {
	key := func(f gpu.Fault) string {
		return fmt.Sprintf("%s %3d %3d %3d %s %6d", f.GPU, f.Placement.Start, f.Placement.Size, f.Placement.Profile, f.Signal, f.XID)
	}
	switch x, y := key(a), key(b); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// clone returns a deep copy of the health.
func clone(h gpu.Health) gpu.Health {
	h.Faults, h.Links, h.Resets = slices.Clone(h.Faults), maps.Clone(h.Links), maps.Clone(h.Resets)
	return h
}

// TestOrderOfEvents checks that the result does not depend on the order in which independent events are recorded.
func TestOrderOfEvents(t *testing.T) {
	t.Parallel()
	at, numbers := placements(t), everyXID()
	rapid.Check(t, func(t *rapid.T) {
		var events []gpu.Event
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			e := anyEvent(t, at, numbers)
			if !slices.ContainsFunc(events, func(o gpu.Event) bool { return o.GPU == e.GPU && o.Placement == e.Placement && o.XID == e.XID }) {
				events = append(events, e)
			}
		}
		noted := func(events []gpu.Event) (h gpu.Health) {
			for _, e := range events {
				h = h.Note(gpu.Rules{}, e, present)
			}
			return h
		}
		if diff := cmp.Diff(noted(events), noted(rapid.Permutation(events).Draw(t, "order"))); diff != "" {
			t.Fatalf("in another order (-first +second):\n%s", diff)
		}
	})
}

// TestSettleEndsOnlyTheProven checks that Settle without a reset, reboot, replacement or quiet period ends no fault that needs
// it, and that it is idempotent.
func TestSettleEndsOnlyTheProven(t *testing.T) {
	t.Parallel()
	at, numbers := placements(t), everyXID()
	rapid.Check(t, func(t *rapid.T) {
		var h gpu.Health
		for range rapid.IntRange(0, 30).Draw(t, "actions") {
			h = anyAction(t, at, numbers)(h)
		}
		s := gpu.Situation{Now: noon.Add(1000 * time.Hour), Boot: present, Checked: map[string]gpu.Checkup{
			faulty: {GPU: faulty, UUID: "GPU-1", At: noon.Add(999 * time.Hour)}, other: {GPU: other, At: noon.Add(999 * time.Hour)},
		}, Held: []gpu.Device{{GPU: faulty, Use: gpu.Use{Shape: gpu.Whole}}}, All: true}
		settled := h.Settle(gpu.Rules{}, s)
		for _, f := range h.InEffect() {
			stays := f.Remedy >= gpu.Reset || f.Remedy == gpu.Restart && f.GPU == faulty || f.Signal != gpu.SignalXID && f.Gone.IsZero()
			if in := slices.ContainsFunc(settled.InEffect(), func(g gpu.Fault) bool { return order(f, g) == 0 }); in != stays {
				t.Fatalf("%+v is in effect: %v, want %v", f, in, stays)
			}
		}
		if diff := cmp.Diff(settled, settled.Settle(gpu.Rules{}, s)); diff != "" {
			t.Fatalf("settled again (-once +twice):\n%s", diff)
		}
	})
}

// crowded returns a node of eight GPUs with the given number of faults each.
func crowded(faults int) (gpu.Health, gpu.Situation) {
	var h gpu.Health
	s := gpu.Situation{Now: noon.Add(time.Hour), Boot: present, Checked: map[string]gpu.Checkup{}, All: true}
	numbers := everyXID()
	for i := range 8 {
		name := fmt.Sprintf("gpu-0000-%02x-00-0", i)
		for k := range faults {
			h = h.Note(gpu.Rules{}, gpu.Event{GPU: name, XID: numbers[k], At: noon}, present)
		}
		s.Checked[name] = gpu.Checkup{GPU: name, UUID: fmt.Sprint("GPU-", i), At: noon.Add(time.Hour)}
	}
	return h, s
}

// BenchmarkHealth measures one event, one checkup and one Settle, on a node with few faults and on one at the limit.
func BenchmarkHealth(b *testing.B) {
	for _, faults := range []int{3, 64} {
		h, s := crowded(faults)
		b.Run(fmt.Sprintf("Note/%d", faults), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Note(gpu.Rules{}, gpu.Event{GPU: "gpu-0000-03-00-0", XID: 13, At: noon}, present)
			}
		})
		b.Run(fmt.Sprintf("NoteNew/%d", faults), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Note(gpu.Rules{}, gpu.Event{GPU: "gpu-0000-03-00-0", XID: 79, Placement: gpu.Placement{Size: 1}, At: noon}, present)
			}
		})
		c := gpu.Checkup{GPU: "gpu-0000-03-00-0", UUID: "GPU-3", At: noon}
		for _, signal := range gpu.Signals()[1:] {
			c.Conditions = append(c.Conditions, gpu.Condition{Signal: signal})
		}
		b.Run(fmt.Sprintf("Check/%d", faults), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Check(gpu.Rules{}, c, present)
			}
		})
		b.Run(fmt.Sprintf("Settle/%d", faults), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Settle(gpu.Rules{}, s)
			}
		})
	}
}
