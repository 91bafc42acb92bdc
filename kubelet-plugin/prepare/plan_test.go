package prepare

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The GPUs of h100x2 and the first of a30x4l40sx4 (MIG on), its third (MIG off) and fifth (no MIG).
const (
	h0 = "gpu-0000-1b-00-0"
	h1 = "gpu-0000-43-00-0"
	a0 = "gpu-0000-17-00-0"
)

// seen is the view of the record's GPUs in the world, with the records of others.
func seen(t *testing.T, w *world, r Record, others ...Record) view {
	t.Helper()
	return w.process(t, nil).readGPUs(quiet(t), r, others)
}

// with makes a record of the claim.
func with(state State, c Claim) Record {
	return Record{Ref: c.Ref, State: state, BootID: "boot-1", Wanted: c.Wanted}
}

// carved puts an instance on the hardware as Tessera leaves it, complete or not.
func carved(t *testing.T, w *world, want Wanted, complete bool) gpu.Instance {
	t.Helper()
	c := w.gpus[want.Use.GPU]
	if c.TogglesMIG() {
		c.Mode = gpu.ModeEnabled
	}
	i, err := w.create(c, want.Use.Placement)
	if err == nil && complete {
		i, err = w.complete(c, i)
	}
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestPlan(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		machine string
		setup   func(t *testing.T, w *world) (Record, []Record)
		want    []string
	}{
		"whole GPU": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.whole(0))), nil
			},
			want: []string{"record-preparing", "verify " + h0, "write-spec", "record-prepared"},
		},
		"whole GPU with MIG left on": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				w.leaveOn(0)
				return with(stateUnrecorded, claim("a", w.whole(0))), nil
			},
			want: []string{"record-preparing", "set-mode " + h0 + " disabled", "verify " + h0, "write-spec", "record-prepared"},
		},
		"time slice": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				c := claim("a", w.whole(0))
				c.Wanted[0].Settings.TimeSlice, c.Wanted[0].Interval = "Short", "Short"
				return with(stateUnrecorded, c), nil
			},
			want: []string{"record-preparing", "verify " + h0, "set-timeslice " + h0 + " Short", "write-spec", "record-prepared"},
		},
		"first slice": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{
				"record-preparing", "set-mode " + h0 + " enabled",
				"create-instance " + h0 + " profile 19 at slices 3-3", "complete-instance " + h0 + " profile 19 at slices 3-3",
				"verify " + h0, "write-spec", "record-prepared",
			},
		},
		"GPUs in order of their names, devices in the claim's": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 6), true)
				return with(stateUnrecorded, claim("a", w.whole(1), w.slice(0, 9, 0), w.slice(0, 14, 4))), []Record{with(StatePrepared, claim("b", w.slice(0, 19, 6)))}
			},
			want: []string{
				"record-preparing",
				"create-instance " + h0 + " profile 9 at slices 0-3", "complete-instance " + h0 + " profile 9 at slices 0-3",
				"create-instance " + h0 + " profile 14 at slices 4-5", "complete-instance " + h0 + " profile 14 at slices 4-5",
				"verify " + h0, "verify " + h1, "write-spec", "record-prepared",
			},
		},
		"Ampere with MIG on": {
			machine: "a30x4l40sx4",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(0, 14, 2))), nil
			},
			want: []string{
				"record-preparing", "create-instance " + a0 + " profile 14 at slices 2-2", "complete-instance " + a0 + " profile 14 at slices 2-2",
				"verify " + a0, "write-spec", "record-prepared",
			},
		},
		"after a crash before the creation": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(StatePreparing, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{
				"set-mode " + h0 + " enabled", "create-instance " + h0 + " profile 19 at slices 3-3",
				"complete-instance " + h0 + " profile 19 at slices 3-3", "verify " + h0, "write-spec", "record-prepared",
			},
		},
		"after a crash between GPU and compute instance": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), false)
				return with(StatePreparing, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{"complete-instance " + h0 + " profile 19 at slices 3-3", "verify " + h0, "write-spec", "record-prepared"},
		},
		"after a crash before the last record": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				return with(StatePreparing, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{"verify " + h0, "write-spec", "record-prepared"},
		},
		"its record was unreadable": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				return with(stateDamaged, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{"verify " + h0, "write-spec", "record-prepared"},
		},
		"its record was unreadable, and it was not ready": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), false)
				return with(stateDamaged, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{"record-preparing", "complete-instance " + h0 + " profile 19 at slices 3-3", "verify " + h0, "write-spec", "record-prepared"},
		},
		"ready": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				return with(StatePrepared, claim("a", w.slice(0, 19, 3), w.whole(1))), nil
			},
			want: []string{"verify " + h0, "verify " + h1, "write-spec"},
		},
		"monitor": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				c := claim("a", w.wanted(0, gpu.Use{Shape: gpu.Monitor}))
				c.Wanted[0].Admin = true
				return with(stateUnrecorded, c), []Record{with(StatePrepared, claim("b", w.whole(0)))}
			},
			want: []string{"record-preparing", "write-spec", "record-prepared"},
		},
		"admin access to a neighbour's slice": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				c := claim("a", w.slice(0, 19, 3))
				c.Wanted[0].Admin = true
				return with(stateUnrecorded, c), []Record{with(StatePrepared, claim("b", w.slice(0, 19, 3)))}
			},
			want: []string{"record-preparing", "verify " + h0, "write-spec", "record-prepared"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.machine)
			r, others := test.setup(t, w)
			steps, err := planPrepare(r, seen(t, w, r, others...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, lines(steps)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	held := func(name string) error { return &AlreadyHeld{Claim: ref(name)} }
	tests := map[string]struct {
		machine string
		setup   func(t *testing.T, w *world) (Record, []Record)
		// is must be in the error's chain; a holder is compared by its claim.
		is       error
		messages []string
	}{
		"whole against whole": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.whole(0))), []Record{with(StatePrepared, claim("b", w.whole(0)))}
			},
			is: held("b"), messages: []string{"device " + h0 + ": held by claim team/b as gpu"},
		},
		"whole against a slice": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.whole(0))), []Record{with(StatePreparing, claim("b", w.slice(0, 19, 6)))}
			},
			is: held("b"), messages: []string{"held by claim team/b as profile 19 at slices 6-6"},
		},
		"slice against whole, being released": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(0, 19, 6))), []Record{with(StateUnpreparing, claim("b", w.whole(0)))}
			},
			is: held("b"), messages: []string{"held by claim team/b as gpu, being released"},
		},
		"overlapping slices": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(0, 19, 0), w.slice(0, 14, 4))),
					[]Record{with(StatePrepared, claim("b", w.slice(0, 19, 1))), with(StatePrepared, claim("c", w.slice(0, 19, 5)))}
			},
			is: held("c"), messages: []string{"device " + h0 + "-mig-14-4: held by claim team/c as profile 19 at slices 5-5"},
		},
		"an engine that there is once": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(0, 20, 0))), []Record{with(StatePrepared, claim("b", w.slice(0, 19, 3))), with(StatePrepared, claim("c", w.slice(0, 20, 5)))}
			},
			is: held("c"),
		},
		"two devices of one claim": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(0, 9, 0), w.slice(0, 19, 2))), nil
			},
			is: held("a"),
		},
		"whole, although the holders already clash": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(0, 19, 6))), []Record{with(StatePrepared, claim("b", w.slice(0, 19, 0))), with(StatePrepared, claim("c", w.whole(0)))}
			},
			is: held("c"),
		},
		"an administrator's instance at the very placement": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				return with(stateUnrecorded, claim("a", w.slice(0, 19, 3))), nil
			},
			is: &ForeignInstance{}, messages: []string{"instance gi1/ci0 (profile 19 at slices 3-3) on " + h0, "not created by Tessera"},
		},
		"an administrator's instance that overlaps": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 9, 0), true)
				return with(StatePreparing, claim("a", w.slice(0, 19, 3))), nil
			},
			is: &ForeignInstance{},
		},
		"an administrator's instance under a whole GPU": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				return with(stateUnrecorded, claim("a", w.whole(0))), nil
			},
			is: &ForeignInstance{},
		},
		"another instance where the neighbour's was": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				return with(stateUnrecorded, claim("a", w.slice(0, 19, 3))), []Record{with(StateUnpreparing, claim("b", w.slice(0, 19, 3)))}
			},
			is: held("b"),
		},
		"Ampere with MIG off": {
			machine: "a30x4l40sx4",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(2, 14, 0))), nil
			},
			is: gpu.ErrUnsupported, messages: []string{"MIG is disabled", "NVIDIA A30", "reset"},
		},
		"Ampere with MIG on, as a whole": {
			machine: "a30x4l40sx4",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.whole(0))), nil
			},
			is: gpu.ErrUnsupported, messages: []string{"MIG is enabled"},
		},
		"a slice of a GPU without MIG": {
			machine: "a30x4l40sx4",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(4, 19, 0))), nil
			},
			is: gpu.ErrUnsupported,
		},
		"a placement that the geometry does not have": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(stateUnrecorded, claim("a", w.slice(0, 9, 2))), nil
			},
			is: gpu.ErrUnsupported, messages: []string{"3g.40gb"},
		},
		"a lost GPU": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				w.gpus[h0].lost = true
				return with(stateUnrecorded, claim("a", w.whole(1), w.whole(0))), nil
			},
			is: gpu.ErrLost,
		},
		"a GPU that the node does not have": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				c := claim("a", w.whole(0))
				c.Wanted[0].Use.GPU = "gpu-ffff-00-00-0"
				return with(StatePrepared, c), nil
			},
			is: gpu.ErrLost, messages: []string{"gpu-ffff-00-00-0", "node1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.machine)
			r, others := test.setup(t, w)
			steps, err := planPrepare(r, seen(t, w, r, others...))
			var byClaim, want *AlreadyHeld
			var inTheWay *ForeignInstance
			switch {
			case errors.As(test.is, &want):
				if !errors.As(err, &byClaim) || byClaim.Claim != want.Claim || !errors.Is(err, gpu.ErrOccupied) {
					t.Errorf("plan: %v %v, want held by %s", lines(steps), err, want.Claim)
				}
			case errors.As(test.is, &inTheWay):
				if !errors.As(err, &inTheWay) || !errors.Is(err, gpu.ErrOccupied) {
					t.Errorf("plan: %v %v, want an instance in the way", lines(steps), err)
				}
			case !errors.Is(err, test.is):
				t.Errorf("plan: %v %v, want %v", lines(steps), err, test.is)
			}
			if !has(err, test.messages...) {
				t.Errorf("plan: %v, want %q", err, test.messages)
			}
		})
	}
}

// TestFitConsidersAllHoldersTogether has three claims of which any two fit: no GPU of the catalogue is like that,
// but a geometry may be.
func TestFitConsidersAllHoldersTogether(t *testing.T) {
	t.Parallel()
	geometry, err := gpu.NewGeometry([]gpu.Profile{
		{ID: 1, Name: "1g", Size: 1, Starts: []int{0, 1, 2, 3}, Engines: gpu.Engines{JPEG: 1}},
		{ID: 4, Name: "4g", Size: 4, Starts: []int{0}, Engines: gpu.Engines{JPEG: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	use := func(start int) gpu.Use {
		return gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 1, Start: start, Size: 1}}
	}
	held := []holder{{use: use(0), refusal: &AlreadyHeld{Claim: ref("b")}}}
	if err := checkFit(geometry.Empty(), held, use(2)); err != nil {
		t.Errorf("with one: %v", err)
	}
	held = append(held, holder{use: use(1), refusal: &AlreadyHeld{Claim: ref("c")}})
	if err := checkFit(geometry.Empty(), held, use(2)); !errors.Is(err, gpu.ErrOccupied) || !has(err, "jpeg-engines") {
		t.Errorf("with two: %v, want the engines that are missing", err)
	}
}

func TestUndo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		machine string
		setup   func(t *testing.T, w *world) (Record, []Record)
		want    []string
	}{
		"whole GPU": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(StatePrepared, claim("a", w.whole(0))), nil
			},
			want: []string{"record-unpreparing", "remove-spec", "delete-record"},
		},
		"whole GPU that is lost": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				w.gpus[h0].lost = true
				return with(StatePrepared, claim("a", w.whole(0))), nil
			},
			want: []string{"record-unpreparing", "remove-spec", "delete-record"},
		},
		"time slice": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				c := claim("a", w.whole(0))
				c.Wanted[0].Settings.TimeSlice, c.Wanted[0].Interval = "Short", "Short"
				return with(StateUnpreparing, c), nil
			},
			want: []string{"remove-spec", "set-timeslice " + h0 + " Default", "delete-record"},
		},
		"last slice": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				return with(StatePrepared, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{"record-unpreparing", "remove-spec", "destroy-instance " + h0 + " profile 19 at slices 3-3", "restore-mode " + h0 + " disabled", "delete-record"},
		},
		"last slice on Ampere": {
			machine: "a30x4l40sx4",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 14, 1), true)
				return with(StatePrepared, claim("a", w.slice(0, 14, 1))), nil
			},
			want: []string{"record-unpreparing", "remove-spec", "destroy-instance " + a0 + " profile 14 at slices 1-1", "delete-record"},
		},
		"MIG device with a neighbour": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				carved(t, w, w.slice(0, 19, 5), true)
				return with(StatePrepared, claim("a", w.slice(0, 19, 3))), []Record{with(StatePrepared, claim("b", w.slice(0, 19, 5)))}
			},
			want: []string{"record-unpreparing", "remove-spec", "destroy-instance " + h0 + " profile 19 at slices 3-3", "delete-record"},
		},
		"MIG device with a neighbour that is not created yet": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				return with(StatePrepared, claim("a", w.slice(0, 19, 3))), []Record{with(StatePreparing, claim("b", w.slice(0, 19, 5)))}
			},
			want: []string{"record-unpreparing", "remove-spec", "destroy-instance " + h0 + " profile 19 at slices 3-3", "delete-record"},
		},
		"MIG device with a foreign one": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				carved(t, w, w.slice(0, 9, 4), true)
				return with(StatePrepared, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{"record-unpreparing", "remove-spec", "destroy-instance " + h0 + " profile 19 at slices 3-3", "delete-record"},
		},
		"an administrator's instance where the claim's was": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				i := carved(t, w, w.slice(0, 19, 3), true)
				r := with(StatePrepared, claim("a", w.slice(0, 19, 3)))
				i.UUID = "MIG-of-the-claim"
				r.Instances = []gpu.Instance{i}
				return r, nil
			},
			want: []string{"record-unpreparing", "remove-spec", "delete-record"},
		},
		"the compute instance is gone already": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				i := carved(t, w, w.slice(0, 19, 3), false)
				r := with(StateUnpreparing, claim("a", w.slice(0, 19, 3)))
				i.CI, i.UUID = 0, "MIG-of-the-claim"
				r.Instances = []gpu.Instance{i}
				return r, nil
			},
			want: []string{"remove-spec", "destroy-instance " + h0 + " profile 19 at slices 3-3", "restore-mode " + h0 + " disabled", "delete-record"},
		},
		"everything is gone already": {
			machine: "h100x2",
			setup: func(_ *testing.T, w *world) (Record, []Record) {
				return with(StateUnpreparing, claim("a", w.slice(0, 19, 3))), nil
			},
			want: []string{"remove-spec", "delete-record"},
		},
		"slices, one on a lost GPU": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				w.gpus[h1].lost = true
				return with(StatePrepared, claim("a", w.slice(1, 19, 0), w.slice(0, 19, 3))), nil
			},
			want: []string{"record-unpreparing", "remove-spec", "destroy-instance " + h0 + " profile 19 at slices 3-3", "restore-mode " + h0 + " disabled"},
		},
		"admin access to a neighbour's slice": {
			machine: "h100x2",
			setup: func(t *testing.T, w *world) (Record, []Record) {
				carved(t, w, w.slice(0, 19, 3), true)
				c := claim("a", w.slice(0, 19, 3))
				c.Wanted[0].Admin = true
				return with(StatePrepared, c), nil
			},
			want: []string{"record-unpreparing", "remove-spec", "delete-record"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.machine)
			r, others := test.setup(t, w)
			steps, err := planUndo(r, seen(t, w, r, others...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, lines(steps)); diff != "" {
				t.Errorf("undo (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUndoRefusesUnreadGPU checks that a GPU which fails to answer, but is not lost, keeps the claim.
func TestUndoRefusesUnreadGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	r := with(StatePrepared, claim("a", w.slice(0, 19, 3)))
	broken := errors.New("broken")
	v := view{gpus: []reading{{name: h0, unread: broken}}}
	if steps, err := planUndo(r, v); !errors.Is(err, broken) {
		t.Errorf("undo: %v %v, want the reason", lines(steps), err)
	}
}

// TestPlanHasNoDuplicateSteps lets the kills, which go over steps, reach each step exactly once.
func TestPlanHasNoDuplicateSteps(t *testing.T) {
	t.Parallel()
	for name, s := range scenarios {
		w := s.try(t).world
		r := with(stateUnrecorded, s.claim(w))
		steps, err := planPrepare(r, w.process(t, nil).readGPUs(quiet(t), r, w.records.snapshot()))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[Step]bool{}
		for _, s := range steps {
			if seen[s] {
				t.Errorf("%s: %v twice", name, s)
			}
			seen[s] = true
		}
	}
}

func TestStepKinds(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for k := RecordPreparing; k <= DeleteRecord; k++ {
		if names[k.String()] || k.String() == "" || stepFuncs[k] == nil {
			t.Errorf("kind %d: %q, has a function: %v", k, k, stepFuncs[k] != nil)
		}
		names[k.String()] = true
	}
	if got := Kind(99).String(); got != "kind-99" {
		t.Errorf("unknown kind: %q", got)
	}
	if len(stepFuncs) != int(DeleteRecord)+1 || len(kindNames) != len(stepFuncs) {
		t.Error("a kind without a row")
	}
	if got := fmt.Sprint([]Step{{Kind: RestoreMode, GPU: "g", Mode: gpu.ModeDisabled}, {Kind: WriteSpec}}); got != "[restore-mode g disabled write-spec]" {
		t.Errorf("a plan prints as %s", got)
	}
}
