package prepare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// TestFirstClaimDecidesInterval walks through wishes for the time slice of one GPU: the first decides, a
// different one is told what is in effect, and the last to go restores the default.
func TestFirstClaimDecidesInterval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "t4x1")
	p := w.process(t, nil)
	card := w.gpus[w.node.GPUs[0].Name()]
	claims := map[string]Claim{
		"any":    claim("any", w.share(0, gpu.TimeShare, 1, 0)),
		"long":   claim("long", w.share(0, gpu.TimeShare, 1, 0).timed("Long")),
		"medium": claim("medium", w.share(0, gpu.TimeShare, 1, 0).timed("Medium")),
		"short":  claim("short", w.share(0, gpu.TimeShare, 1, 0).timed("Short")),
	}
	for _, step := range []struct {
		prepare, unprepare string
		// told is the interval of the answer, has that of the GPU afterwards.
		reported, has string
	}{
		{prepare: "any", reported: "", has: "Default"},
		{prepare: "long", reported: "Long", has: "Long"},
		{prepare: "short", reported: "Long", has: "Long"},
		{prepare: "long", reported: "Long", has: "Long"},
		{unprepare: "long", has: "Long"},
		{prepare: "medium", reported: "Long", has: "Long"},
		{unprepare: "short", has: "Long"},
		{unprepare: "medium", has: "Default"},
		{prepare: "short", reported: "Short", has: "Short"},
		{unprepare: "short", has: "Default"},
		{unprepare: "any", has: "Default"},
	} {
		if step.prepare != "" {
			answers := mustPrepare(t, p, claims[step.prepare])
			if got := answers[0].Interval; got != step.reported {
				t.Errorf("%+v: reported %q", step, got)
			}
			if requested := claims[step.prepare].Wanted[0].Settings; answers[0].Settings != requested {
				t.Errorf("%+v: the answer has the settings %v", step, answers[0].Settings)
			}
		} else if err := p.Unprepare(quiet(t), claims[step.unprepare].Ref); err != nil {
			t.Fatal(err)
		}
		if card.interval != step.has {
			t.Errorf("%+v: the GPU has %s", step, card.interval)
		}
	}
	clean(t, w)
}

// The memory limit of a share can be raised at most to what the GPU has, and only where the driver limits memory.
func TestMemoryLimitIsChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limiter gpu.Limiter
		shape   gpu.Shape
		limit   int64
		want    string
	}{
		"as requested":         {gpu.LimitedByMisc, gpu.TimeShare, 10 << 30, ""},
		"more":                 {gpu.LimitedByDmem, gpu.MPS, 20 << 30, ""},
		"less than requested":  {gpu.LimitedByMisc, gpu.TimeShare, 9 << 30, "is below the 10737418240 bytes of memory that the claim requests"},
		"more than the GPU":    {gpu.LimitedByMisc, gpu.TimeShare, 200 << 30, "is more than the"},
		"an old driver":        {gpu.NotLimited, gpu.TimeShare, 20 << 30, "memoryEnforced is none"},
		"MPS shares with misc": {gpu.LimitedByMisc, gpu.MPS, 20 << 30, "memoryEnforced is none"},
	} {
		w := newWorld(t, "h100x2")
		w.node.GPUs[0].Limiter = test.limiter
		p := w.process(t, nil)
		wanted := w.share(0, test.shape, 10, 0)
		wanted.Settings.MemoryLimitBytes = test.limit
		answers, err := p.Prepare(quiet(t), claim("a", wanted))
		switch {
		case test.want != "" && (!errors.Is(err, gpu.ErrUnsupported) || !has(err, "memoryLimit: ", test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want == "" && test.shape == gpu.MPS && answers[0].Daemon.PinnedMemoryBytes != test.limit:
			// The limit of the control group is raised at run time; what connected clients would get from MPS is not documented.
			t.Errorf("%s: the MPS daemon limits its clients to %d bytes", name, answers[0].Daemon.PinnedMemoryBytes)
		}
	}
}

// The record of a claim is locked only while the claim is prepared, and kubelet's calls for the claim wait.
func TestLockPrepared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	if _, _, err := p.LockPrepared(quiet(t), ref("a")); !errors.Is(err, ErrNoRecord) {
		t.Errorf("before: %v", err)
	}
	c := claim("a", w.share(0, gpu.TimeShare, 10, 0))
	mustPrepare(t, p, c)
	r, unlock, err := p.LockPrepared(quiet(t), c.Ref)
	if err != nil || r.Ref != c.Ref {
		t.Fatalf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(quiet(t))
	cancel()
	if err := p.Unprepare(ctx, c.Ref); !errors.Is(err, context.Canceled) {
		t.Errorf("meanwhile: %v", err)
	}
	unlock()
	w.reboot()
	if _, _, err := w.process(t, nil).LockPrepared(quiet(t), c.Ref); !errors.Is(err, ErrNoRecord) {
		t.Errorf("after a reboot: %v", err)
	}
}

// TestSharesAreCounted hands out shares as an allocator may that knows nothing of another one.
func TestSharesAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	mustPrepare(t, p, claim("half", w.share(0, gpu.MPS, 40, 50)))
	mustPrepare(t, p, claim("quarter", w.share(0, gpu.MPS, 20, 25)))
	for name, test := range map[string]struct {
		wanted   Wanted
		messages []string
	}{
		"more memory than is left":  {w.share(0, gpu.MPS, 30, 0), []string{"memory", "are allocated"}},
		"more compute than is left": {w.share(0, gpu.MPS, 1, 30), []string{"multiprocessors", "75 of 100"}},
		"another way of sharing":    {w.share(0, gpu.TimeShare, 1, 0), []string{"held by claim team/half as mps"}},
		"the whole GPU":             {w.whole(0), []string{"held by claim team/half as mps"}},
		"a slice":                   {w.slice(0, 19, 0), []string{"held by claim team/half as mps"}},
	} {
		if _, err := p.Prepare(quiet(t), claim("late", test.wanted)); !errors.Is(err, gpu.ErrOccupied) || !has(err, test.messages...) {
			t.Errorf("%s: %v, want %q", name, err, test.messages)
		}
	}
	mustPrepare(t, p, claim("rest", w.share(0, gpu.MPS, 10, 25)))
	if _, err := p.Prepare(quiet(t), claim("fourth", w.share(0, gpu.MPS, 1, 0))); !has(err, "3 of 3 are allocated") {
		t.Errorf("a fourth share: %v", err)
	}
	for _, name := range []string{"half", "quarter", "rest"} {
		if err := p.Unprepare(quiet(t), ref(name)); err != nil {
			t.Error(err)
		}
	}
	mustPrepare(t, p, claim("whole", w.whole(0)))
	if err := p.Unprepare(quiet(t), ref("whole")); err != nil {
		t.Error(err)
	}
	clean(t, w)
}

// TestDaemonBounds follows the limits of a shared daemon as claims come and go: it bounds every client to the largest limit, and to none when one claim has
// none. The namespace of each claim has the claim's limits.
func TestDaemonBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	name := "mps-" + w.node.GPUs[0].Name()
	daemon := func(percentage int, memory int64, namespaces ...Namespace) Daemon {
		return Daemon{
			Name: name, GPU: w.node.GPUs[0].Name(), Visible: w.node.GPUs[0].UUID,
			ActiveThreadPercentage: percentage, PinnedMemoryBytes: memory, Namespaces: namespaces,
		}
	}
	a, b, c := Namespace{"c_uida", 25, 10 << 30}, Namespace{"c_uidb", 20, 20 << 30}, Namespace{"c_uidc", 0, 5 << 30}
	two := Namespace{"c_uidd", 15, 5 << 30}
	another := w.share(0, gpu.MPS, 3, 10)
	another.ShareID = "another"
	for _, step := range []struct {
		claim      Claim
		percentage int
		memory     int64
		namespaces []Namespace
	}{
		{claim("a", w.share(0, gpu.MPS, 10, 25)), 25, 10 << 30, []Namespace{a}},
		{claim("b", w.share(0, gpu.MPS, 20, 20)), 25, 20 << 30, []Namespace{a, b}},
		{claim("c", w.share(0, gpu.MPS, 5, 0)), 0, 20 << 30, []Namespace{a, b, c}},
	} {
		answers := mustPrepare(t, p, step.claim)
		got := w.fleet.daemons[name].Daemon
		if diff := cmp.Diff(daemon(step.percentage, step.memory, step.namespaces...), got); diff != "" {
			t.Errorf("claim %s: daemon (-want +got):\n%s", step.claim.Ref, diff)
		}
		share := step.claim.Wanted[0].Use.Share
		client := Client{Name: name, Folders: DaemonFolders{Pipe: "/run/" + name + "/pipe/claims/c_uid" + step.claim.Name, Shm: "/run/" + name + "/shm"},
			ActiveThreadPercentage: share.Compute, PinnedMemoryBytes: int64(share.MemoryBytes)}
		if diff := cmp.Diff(&client, answers[0].Daemon); diff != "" {
			t.Errorf("claim %s: client (-want +got):\n%s", step.claim.Ref, diff)
		}
	}
	mustUnprepare(t, p, claim("b"))
	mustUnprepare(t, p, claim("c"))
	mustPrepare(t, p, claim("d", w.share(0, gpu.MPS, 2, 5), another))
	if diff := cmp.Diff(daemon(25, 10<<30, a, two), w.fleet.daemons[name].Daemon); diff != "" {
		t.Errorf("after two claims ended, with two shares of another: daemon (-want +got):\n%s", diff)
	}
}

// TestPrivateDaemons shows which devices of a claim share a daemon: whole GPUs with the same thread percentage do.
func TestPrivateDaemons(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a30x4l40sx4")
	r := with(StatePrepared, claim("a",
		w.slice(0, 14, 0).served(10), w.whole(4).served(20), w.slice(1, 14, 0).served(10),
		w.whole(5).served(30), w.whole(6).served(20), w.whole(7)))
	want := []string{"mps-uid-a-0", "mps-uid-a-1", "mps-uid-a-2", "mps-uid-a-3"}
	if diff := cmp.Diff(want, r.daemons()); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
	if got := r.daemonOf(4); got != want[1] {
		t.Errorf("GPU with the limits of another: %s", got)
	}
	mustPrepare(t, w.process(t, nil), Claim{Ref: r.Ref, Wanted: r.Wanted})
	uuids := []string{w.node.GPUs[4].UUID, w.node.GPUs[6].UUID}
	slices.Sort(uuids)
	if got := w.fleet.daemons[want[1]].Visible; got != uuids[0]+","+uuids[1] {
		t.Errorf("%s serves %s, want %q", want[1], got, uuids)
	}
}

// TestDaemonHasLimitsByDevice checks that whole GPUs of a claim with different memory limits share a daemon, which has the limit of each at its position.
func TestDaemonHasLimitsByDevice(t *testing.T) {
	t.Parallel()
	const gi = 1 << 30
	for name, test := range map[string]struct {
		limits []int64
		// all is the limit of all devices, other that of each in the order of the limits.
		all   int64
		other bool
	}{
		"one limit":   {limits: []int64{gi, gi, gi}, all: gi},
		"no limit":    {limits: []int64{0, 0, 0}},
		"two limits":  {limits: []int64{gi, 2 * gi, gi}, other: true},
		"all differ":  {limits: []int64{3 * gi, 2 * gi, gi}, other: true},
		"one has one": {limits: []int64{0, 0, gi}, other: true},
	} {
		w := newWorld(t, "a30x4l40sx4")
		c, byUUID := Claim{Ref: ref("a")}, map[string]int64{}
		for i, limit := range test.limits {
			c.Wanted = append(c.Wanted, w.whole(4+i).served(20).limited(limit))
			byUUID[w.node.GPUs[4+i].UUID] = limit
		}
		want := Daemon{Name: "mps-uid-a-0", ClaimUID: "uid-a", ActiveThreadPercentage: 20, PinnedMemoryBytes: test.all}
		uuids := slices.Sorted(maps.Keys(byUUID))
		want.Visible = strings.Join(uuids, ",")
		if test.other {
			want.DeviceMemoryBytes = fmt.Sprintf("%d,%d,%d", byUUID[uuids[0]], byUUID[uuids[1]], byUUID[uuids[2]])
		}
		p := w.process(t, nil)
		for range 2 { // also when kubelet calls again
			answers := mustPrepare(t, p, c)
			for i, a := range answers {
				if a.Daemon.Name != want.Name || a.Daemon.PinnedMemoryBytes != test.limits[i] {
					t.Errorf("%s: device %d has %+v", name, i, a.Daemon)
				}
			}
			if diff := cmp.Diff(want, w.fleet.daemons[want.Name].Daemon); diff != "" || len(w.fleet.daemons) != 1 {
				t.Errorf("%s: %d daemons (-want +got):\n%s", name, len(w.fleet.daemons), diff)
			}
		}
		mustUnprepare(t, p, c)
		clean(t, w)
	}
}

// TestDaemonsOfEarlierRecords checks that GPUs of a record of a release with one memory limit per daemon keep their daemons.
func TestDaemonsOfEarlierRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a30x4l40sx4")
	r := with(StatePrepared, claim("a", w.whole(4).served(20).limited(1<<30), w.whole(5).served(20).limited(2<<30), w.whole(6).served(20).limited(1<<30)))
	for i := range r.Wanted {
		r.Wanted[i].DaemonByLimit = true
	}
	if diff := cmp.Diff([]string{"mps-uid-a-0", "mps-uid-a-1"}, r.daemons()); diff != "" || r.daemonOf(2) != "mps-uid-a-0" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
}

// TestReleaseOrphanDaemons ends daemons without a claim, and no others.
func TestReleaseOrphanDaemons(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	shared, private, damaged := claim("a", w.share(0, gpu.MPS, 10, 0)), claim("b", w.slice(1, 19, 0).served(10)), claim("c", w.slice(1, 19, 1).served(10))
	for _, c := range []Claim{shared, private, damaged} {
		mustPrepare(t, p, c)
	}
	w.damage(damaged)
	w.fleet.daemons["mps-lost"] = &daemon{Daemon: Daemon{Name: "mps-lost", ClaimUID: "uid-lost"}, alive: true}
	w.fleet.daemons["mps-other"] = &daemon{Daemon: Daemon{Name: "mps-other", GPU: w.node.GPUs[1].Name()}, alive: true}
	if err := p.releaseOrphanDaemons(quiet(t)); err != nil {
		t.Fatal(err)
	}
	if len(w.fleet.daemons) != 3 || w.fleet.daemons["mps-lost"] != nil || w.fleet.daemons["mps-other"] != nil {
		t.Errorf("daemons after the sweep: %v", w.fleet.daemons)
	}
	if users, err := p.DaemonUsers("mps-" + w.node.GPUs[0].Name()); err != nil || !slices.Equal(users, []Ref{shared.Ref}) {
		t.Errorf("users of the shared daemon: %v, %v, want %v", users, err, shared.Ref)
	}
	w.reboot()
	if err := w.process(t, nil).Reconcile(quiet(t)); err != nil {
		t.Fatal(err)
	}
	if len(w.fleet.daemons) > 1 {
		t.Errorf("daemons after a boot: %v, want at most that of the claim whose record is damaged", w.fleet.daemons)
	}
}

// TestReleaseOrphanDaemonsOfLockedClaims leaves the daemon of a claim that another call works on, and waits for a GPU no longer than it may.
func TestReleaseOrphanDaemonsOfLockedClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	gpuName := w.node.GPUs[0].Name()
	add := func(d Daemon) { w.fleet.daemons[d.Name] = &daemon{Daemon: d, alive: true} }
	add(Daemon{Name: "mps-private", ClaimUID: "uid-lost"})
	held, free, err := p.locks.tryAcquireClaim(Ref{UID: "uid-lost"})
	if err != nil || !free {
		t.Fatal(free, err)
	}
	if err := p.releaseOrphanDaemons(quiet(t)); err != nil || w.fleet.daemons["mps-private"] == nil {
		t.Errorf("while the claim is locked: %v, daemons %v", err, w.fleet.daemons)
	}
	held.release()
	if err := p.releaseOrphanDaemons(quiet(t)); err != nil || len(w.fleet.daemons) > 0 {
		t.Errorf("after that: %v, daemons %v", err, w.fleet.daemons)
	}

	add(Daemon{Name: "mps-shared", GPU: gpuName})
	add(Daemon{Name: "mps-wrong", ClaimUID: "../uid"})
	release, err := p.locks.acquireGPUs(quiet(t), []string{gpuName}, ref("other"))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(quiet(t))
	end()
	if err := p.releaseOrphanDaemons(ended); !errors.Is(err, context.Canceled) || !has(err, "mps-shared") || !has(err, "mps-wrong") || len(w.fleet.daemons) != 2 {
		t.Errorf("while the GPU is locked: %v, daemons %v", err, w.fleet.daemons)
	}
	release()
}

// TestDefaults refuses what needs a part that the node does not have.
func TestDefaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	full := w.process(t, nil).Config
	full.Processes, full.Blocked, full.Monitoring, full.TimeSlice, full.Daemons, full.Gate, full.Observer, full.Reconciled = nil, nil, nil, nil, nil, nil, nil, nil
	p, err := New(full)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Claim{claim("mps", w.share(0, gpu.MPS, 10, 0)), claim("timed", w.share(0, gpu.TimeShare, 1, 0).timed("Long"))} {
		if _, err := p.Prepare(quiet(t), c); !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("%s: %v, want %v", c.Ref, err, gpu.ErrUnsupported)
		}
	}
	c := claim("slice", w.slice(0, 19, 3))
	w.before = func(call string) error {
		if call == "set-mode "+h0 {
			return gpu.ErrBusy
		}
		return nil
	}
	if _, err := p.Prepare(quiet(t), c); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("while a program has the GPU open: %v, want %v", err, gpu.ErrBusy)
	}
	w.before = nil
	mustPrepare(t, p, c)
	if err := p.Reconcile(quiet(t)); err != nil {
		t.Error(err)
	}
	mustUnprepare(t, p, c)
	clean(t, w)
}

// TestRecordsCannotBeRead changes nothing while a record, or the list of the others, cannot be read.
func TestRecordsCannotBeRead(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken disk")
	for _, call := range []string{"load", "list-records"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "h100x2")
			held, wanted := claim("held", w.share(0, gpu.MPS, 10, 0)), claim("wanted", w.share(0, gpu.MPS, 10, 0))
			slice := claim("slice", w.slice(1, 19, 3))
			mustPrepare(t, w.process(t, nil), held)
			mustPrepare(t, w.process(t, nil), slice)
			instances, daemons := w.instances(), len(w.fleet.daemons)
			w.before = func(made string) error {
				if made == call {
					return broken
				}
				return nil
			}
			p := w.process(t, nil)
			_, again := p.Prepare(quiet(t), held)
			_, prepared := p.Prepare(quiet(t), wanted)
			calls := map[string]error{"prepare again": again, "prepare": prepared, "reconcile": p.Reconcile(quiet(t)), "unprepare": p.Unprepare(quiet(t), held.Ref)}
			if call == "list-records" {
				mustPrepare(t, p, slice) // what other claims hold does not matter
				_, calls["users"] = p.DaemonUsers("mps-" + h0)
			}
			w.before = nil
			for call, err := range calls {
				if !errors.Is(err, broken) {
					t.Errorf("%s: %v, want %v", call, err, broken)
				}
			}
			if len(w.records.kept) != 2 || len(w.fleet.daemons) != daemons || !cmp.Equal(instances, w.instances()) {
				t.Errorf("changed: records %v, daemons %v, instances %v", w.records.kept, w.fleet.daemons, w.instances())
			}
		})
	}
}
