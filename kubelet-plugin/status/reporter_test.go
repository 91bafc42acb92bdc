package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/kubelet-plugin/diagnosis"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const nic = other + " nic"

// is compares the claim's entries; the other driver's is always there.
func (w *world) is(when, name string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(append(want, nic), w.lines(name)); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func TestClaimLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allocated("c", "g0", "g1/s1"))
		w.foreign("c", "nic")
		ready := []string{driver + " g0 Ready=True Prepared", driver + " g1 s1 Ready=True Prepared"}
		answers := []prepare.Answer{answer("g0"), answer("g1/s1"), answer("not-allocated")}

		w.run(func() { w.reporter.Prepared(ref("c"), answers) })
		w.is("prepared", "c", ready...)
		since := w.claim("c").Status.Devices[0].Conditions

		time.Sleep(time.Minute)
		w.run(func() { w.reporter.Refused(ref("c"), "GPULost", "gpu-0000-3b-00-0 does not answer") })
		w.is("refused", "c",
			driver+" g0 Ready=False GPULost gpu-0000-3b-00-0 does not answer", driver+" g1 s1 Ready=False GPULost gpu-0000-3b-00-0 does not answer")
		if w.claim("c").Status.Devices[1].Data == nil {
			t.Error("a refusal lost the device")
		}

		time.Sleep(time.Minute)
		w.run(func() { w.reporter.Prepared(ref("c"), answers) })
		w.is("prepared again", "c", ready...)
		if again := w.claim("c").Status.Devices; cmp.Equal(since, again[0].Conditions) && cmp.Equal(since, again[1].Conditions) {
			t.Error("the time of the last transition did not move")
		}

		w.run(func() { w.reporter.Unprepared(ref("c")) })
		w.is("unprepared", "c")
	})
}

func TestSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allocated("c", "g0"))
		w.foreign("c", "nic")
		w.run(func() {
			w.reporter.Prepared(ref("c"), []prepare.Answer{answer("g0", timeSlice("Long", "Short"))})
		})
		const why = "the time slice Long is not in effect on gpu-0000-3b-00-0: an earlier claim requested Short; request the same, or use another GPU"
		w.is("not granted", "c", driver+" g0 Ready=True Prepared", driver+" g0 TimeSliceApplied=False DifferentIntervalInEffect "+why)
		want := []string{
			"1x Warning TimeSliceNotApplied Pod/a: " + why,
			"1x Warning TimeSliceNotApplied Pod/b: " + why,
			"1x Warning TimeSliceNotApplied ResourceClaim/c: " + why,
		}
		if diff := cmp.Diff(want, w.events()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		w.run(func() {
			w.reporter.Prepared(ref("c"), []prepare.Answer{answer("g0", timeSlice("Long", "Long"))})
		})
		w.is("granted", "c", driver+" g0 Ready=True Prepared", driver+" g0 TimeSliceApplied=True RequestedIntervalInEffect")
		w.run(func() { w.reporter.Prepared(ref("c"), []prepare.Answer{answer("g0")}) })
		w.is("no time slice", "c", driver+" g0 Ready=True Prepared")
		if got := len(w.events()); got != len(want) {
			t.Errorf("%d events, want no more than %d", got, len(want))
		}
	})
}

// TestRepetition tells the same again and again: it is written and told once.
func TestRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allocated("c", "g0"), allocated("d", "g1"))
		answers := []prepare.Answer{answer("g0")}
		for range 20 {
			w.run(func() {
				for range 5 {
					w.reporter.Prepared(ref("c"), answers)
					w.reporter.Refused(ref("d"), "DeviceBusy", "in use")
				}
			})
			time.Sleep(10 * time.Second)
		}
		if got := w.count("patch", "resourceclaims"); got != 2 {
			t.Errorf("%d writes, want one per claim", got)
		}
		reads := w.count("get", "resourceclaims")
		w.run(func() { w.reporter.Reconciled(ref("c"), answers) })
		if got := w.count("get", "resourceclaims"); got != reads {
			t.Error("a claim that is known to be written was looked at again")
		}
		w.run(func() { w.reporter.Reconciled(ref("c"), []prepare.Answer{answer("g0", timeSlice("Long", "Long"))}) })
		if got := w.count("patch", "resourceclaims"); got != 3 {
			t.Errorf("%d writes, want another one for what changed", got)
		}
	})
}

// TestShortLivedClaimIsNotWritten prepares a claim and takes it back at once: nothing is written.
func TestShortLivedClaimIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allocated("c", "g0"))
		w.run(func() {
			synctest.Wait() // what is noted before a reporter runs is written at once
			for range 10 {
				w.reporter.Prepared(ref("c"), []prepare.Answer{answer("g0")})
				time.Sleep(writeDelay / 100)
				w.reporter.Unprepared(ref("c"))
				time.Sleep(writeDelay / 100)
			}
		})
		if reads, writes := w.count("get", "resourceclaims"), w.count("patch", "resourceclaims"); reads != 1 || writes != 0 {
			t.Errorf("%d reads and %d writes, want one look", reads, writes)
		}
	})
}

// TestRetryLoopWritesNoRepeatedEvents refuses a claim every ten seconds for an hour, in one run.
func TestRetryLoopWritesNoRepeatedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allocated("c", "g0"))
		w.run(func() {
			for range 360 {
				w.reporter.Refused(ref("c"), "DeviceBusy", "in use")
				time.Sleep(10 * time.Second)
			}
		})
		want := []string{
			"12x Warning DeviceBusy Pod/a: in use", "12x Warning DeviceBusy Pod/b: in use", "12x Warning DeviceBusy ResourceClaim/c: in use",
		}
		if diff := cmp.Diff(want, w.events()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestRetries(t *testing.T) {
	claims := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	for name, test := range map[string]struct {
		err      error
		failures float64
	}{
		"conflict":  {apierrors.NewConflict(claims, "c", errors.New("changed")), 0},
		"server":    {apierrors.NewInternalError(errors.New("etcd is away")), 5},
		"forbidden": {apierrors.NewForbidden(claims, "c", errors.New("no role")), 5},
		"network":   {errors.New("connection refused"), 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, allocated("c", "g0"))
				w.foreign("c", "nic")
				w.fail(5, test.err)
				w.run(func() {
					w.reporter.Prepared(ref("c"), []prepare.Answer{answer("g0")})
					time.Sleep(time.Minute)
				})
				w.is("after retries", "c", driver+" g0 Ready=True Prepared")
				if got := testutil.ToFloat64(w.reporter.metrics.failures); got != test.failures {
					t.Errorf("%v failures counted, want %v", got, test.failures)
				}
				if got := w.reporter.Depth(); got != 0 {
					t.Errorf("%v claims wait", got)
				}
			})
		})
	}
}

// TestLaterUpdateReplacesEarlier tells of a claim while an older report of it is being written, and while one
// waits for its next try.
func TestLaterUpdateReplacesEarlier(t *testing.T) {
	for name, outcome := range map[string]error{"written": nil, "failed": errors.New("connection reset")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, allocated("c", "g0"))
				w.foreign("c", "nic")
				release, written := make(chan struct{}), 0
				w.client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					<-release
					written++
					return outcome != nil && written == 1, nil, outcome
				})
				w.run(func() {
					w.reporter.Prepared(ref("c"), []prepare.Answer{answer("g0")})
					time.Sleep(writeDelay)
					synctest.Wait()
					w.reporter.Unprepared(ref("c"))
					close(release)
					time.Sleep(time.Minute)
				})
				w.is("unprepared", "c")
				w.run(func() {
					w.reporter.Unprepared(ref("c"))
					w.reporter.Prepared(ref("c"), []prepare.Answer{answer("g0")})
				})
				w.is("prepared", "c", driver+" g0 Ready=True Prepared")
			})
		})
	}
}

// TestNoticesSurviveLaterUpdates refuses a claim while nothing can be read, and prepares it then.
func TestNoticesSurviveLaterUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allocated("c", "g0"))
		w.foreign("c", "nic")
		w.reporter.Refused(ref("c"), "DeviceBusy", "in use")
		w.reporter.DaemonRestarted("mps-gpu-0000-3b-00-0", []prepare.Ref{ref("c"), ref("gone")}, "exit status 1")
		w.reporter.Prepared(ref("c"), []prepare.Answer{answer("g0")})
		w.run(func() {})
		w.is("prepared", "c", driver+" g0 Ready=True Prepared")
		var want []string
		for _, object := range []string{"Pod/a", "Pod/b", "ResourceClaim/c"} {
			want = append(want, "1x Warning DeviceBusy "+object+": in use")
		}
		for _, object := range []string{"Pod/a", "Pod/b", "ResourceClaim/c"} {
			want = append(want, "1x Warning MPSDaemonRestarted "+object+
				": MPS daemon mps-gpu-0000-3b-00-0 was restarted: exit status 1. CUDA programs that were connected to it have failed: restart them")
		}
		if diff := cmp.Diff(want, w.events()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, allocated("written", "g0"), allocated("lost", "g1"))
		w.run(func() { w.reporter.Prepared(ref("written"), []prepare.Answer{answer("g0")}) })
		w.start()
		writes := w.count("patch", "resourceclaims")
		w.run(func() {
			w.reporter.Reconciled(ref("written"), []prepare.Answer{answer("g0")})
			w.reporter.Reconciled(ref("lost"), []prepare.Answer{answer("g1")})
		})
		if got := w.count("patch", "resourceclaims") - writes; got != 1 {
			t.Errorf("%d writes, want the missing one", got)
		}
		if diff := cmp.Diff([]string{driver + " g1 Ready=True Prepared"}, w.lines("lost")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestAnotherClaim reports a claim whose name another one has by now, and one that was given back.
func TestAnotherClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := allocated("released")
		w := newWorld(t, allocated("c", "g0"), released)
		older := ref("c")
		older.UID = "uid-older"
		w.run(func() {
			for _, claim := range []prepare.Ref{older, ref("gone"), ref("released")} {
				w.reporter.Prepared(claim, []prepare.Answer{answer("g0")})
				w.reporter.Refused(claim, "Timeout", "too late")
				w.reporter.Prepared(claim, []prepare.Answer{answer("g0")})
			}
		})
		if got := w.count("patch", "resourceclaims"); got != 0 || w.reporter.Depth() != 0 {
			t.Errorf("%d writes, %v wait; want none", got, w.reporter.Depth())
		}
	})
}

func TestBounds(t *testing.T) {
	w := newWorld(t)
	for i := range maxPending + 7 {
		for range 3 {
			w.reporter.Prepared(ref(fmt.Sprint(i)), nil)
		}
	}
	expected := fmt.Sprintf(`
# HELP tessera_claim_status_dropped_total Claim status updates dropped because the queue was full.
# TYPE tessera_claim_status_dropped_total counter
tessera_claim_status_dropped_total 21
# HELP tessera_claim_status_queue_depth Claims in the queue for a status update.
# TYPE tessera_claim_status_queue_depth gauge
tessera_claim_status_queue_depth %d
`, maxPending)
	if err := testutil.GatherAndCompare(w.registry, strings.NewReader(expected), "tessera_claim_status_dropped_total", "tessera_claim_status_queue_depth"); err != nil {
		t.Error(err)
	}
	for i := range 100 {
		w.reporter.Refused(ref("0"), "Timeout", fmt.Sprint(i))
	}
	if got := len(w.reporter.updates["uid-0"].notices); got != maxNotices {
		t.Errorf("%d notices of one claim wait, want %d", got, maxNotices)
	}
}

func TestClip(t *testing.T) {
	long := strings.Repeat("ä", diagnosis.MaxMessage)
	if got := diagnosis.Clip(long); len(got) > diagnosis.MaxMessage || !strings.HasSuffix(got, "ä...") {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-8:])
	}
	if got := diagnosis.Clip("short"); got != "short" {
		t.Errorf("%q", got)
	}
}

func TestManager(t *testing.T) {
	long := Config{Driver: driver, Node: strings.Repeat("n", 253)}.manager()
	longer := Config{Driver: driver, Node: strings.Repeat("n", 252) + "m"}.manager()
	if len(long) > maxManager || long == longer {
		t.Errorf("%q, %q: want two names of at most %d characters", long, longer, maxManager)
	}
	if got, want := (Config{Driver: driver, Node: "node1"}).manager(), driver+"/node1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
