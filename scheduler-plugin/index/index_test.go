package index_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// TestPublished checks the state of a node that has ResourceSlices only.
func TestPublished(t *testing.T) {
	t.Parallel()
	x := newIndex()
	n := machine(t, "h100x2", "n1")
	list := publish(t, n, 1, 1)
	set(x, []*resourceapi.ResourceSlice{list[1], list[0]})
	set(x, list[2:])
	got := known(t, x, "n1")
	if got.DelegateReason != nil || got.Foreign || got.Driver != driver || got.Pool != "n1-"+driver {
		t.Errorf("unclear %v, foreign %v, driver %q, pool %q", got.DelegateReason, got.Foreign, got.Driver, got.Pool)
	}
	if diff := cmp.Diff(list, got.Slices); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
	var published []*resourceapi.Device
	for _, s := range list {
		for i := range s.Spec.Devices {
			published = append(published, &s.Spec.Devices[i])
		}
	}
	if !slices.Equal(published, got.Devices) {
		t.Errorf("%d devices in another order than the %d published, or copies of them", len(got.Devices), len(published))
	}
	for i, d := range n.Devices(everyShape.Offer) {
		if of := got.Fit.Devices[i]; of.Use != d.Use || got.Fit.GPUs[of.GPU].Name != d.GPU {
			t.Fatalf("device %d: %+v of %s, want %+v", i, of, got.Fit.GPUs[of.GPU].Name, d)
		}
	}
	if l := got.Load(); l != (index.Load{GPUs: 2, Idle: 2, Slices: 16, Free: 16}) {
		t.Errorf("load %+v", l)
	}
}

// TestNodesShare checks that equal nodes share their interned values.
func TestNodesShare(t *testing.T) {
	t.Parallel()
	x := newIndex()
	set(x, publish(t, machine(t, "h100x8", "n1"), 1, 1))
	set(x, publish(t, machine(t, "h100x8", "n2"), 1, 1))
	a, b := known(t, x, "n1").Fit, known(t, x, "n2").Fit
	if a.Wiring != b.Wiring || a.GPUs[0].Kind != b.GPUs[7].Kind || &a.Devices[0] != &b.Devices[0] {
		t.Error("equal nodes have wirings, kinds or devices of their own")
	}
	if a.GPUs[0].Occupancy != b.GPUs[3].Occupancy {
		t.Error("empty GPUs of one kind differ")
	}
}

// step is one event and what must be free of GPU 0 of node n1 afterwards.
type step struct {
	name string
	do   func(x *index.Index)
	free gpu.Mask
	// inFlight are the claims in flight on the node.
	inFlight []string
}

// TestClaim checks what a claim holds while it is allocated, written, observed and deleted.
func TestClaim(t *testing.T) {
	t.Parallel()
	n := machine(t, "h100x2", "n1")
	const all, half = gpu.Mask(0xff), gpu.Mask(0xf0)
	first, gpu1 := result("n1", mig(n, 0, 9, 0)), result("n1", whole(n, 1))
	admin := result("n1", whole(n, 0))
	admin.AdminAccess = new(true)
	named := types.NamespacedName{Namespace: "team", Name: "a"}
	bare := func(version int) *resourceapi.ResourceClaim { return claimOf("a", version) }
	allocated := func(version int) *resourceapi.ResourceClaim { return claimOf("a", version, first) }
	other := claimOf("a", 9)
	other.UID = "other"
	observe := step{"observe", func(x *index.Index) { x.SetClaim(bare(1)) }, all, nil}
	pend := step{"pend", func(x *index.Index) { x.AddPendingAllocation(allocated(1)) }, half, []string{"a"}}
	assume := step{"assume", func(x *index.Index) { x.AssumeClaim(allocated(2)) }, half, nil}
	settle := func(free gpu.Mask) step {
		return step{"settle", func(x *index.Index) { x.RemovePendingAllocation("uid-a") }, free, nil}
	}
	remove := func(free gpu.Mask, inFlight ...string) step {
		return step{"delete", func(x *index.Index) { x.DeleteClaim(bare(7)) }, free, inFlight}
	}
	for name, steps := range map[string][]step{
		"bound": {observe, pend, assume, settle(half),
			{"observe the written", func(x *index.Index) { x.SetClaim(allocated(2)) }, half, nil},
			{"observe released", func(x *index.Index) { x.SetClaim(bare(3)) }, all, nil}},
		"unreserved": {observe, pend, settle(all)},
		"written and taken back": {observe, pend, assume, settle(half),
			{"restore", func(x *index.Index) { x.RestoreClaim(named) }, half, nil},
			{"observe what was before", func(x *index.Index) { x.SetClaim(bare(1)) }, half, nil},
			{"observe released", func(x *index.Index) { x.SetClaim(bare(3)) }, all, nil}},
		"released and taken back": {
			{"observe", func(x *index.Index) { x.SetClaim(allocated(1)) }, half, nil},
			{"assume", func(x *index.Index) { x.AssumeClaim(bare(2)) }, all, nil},
			{"restore", func(x *index.Index) { x.RestoreClaim(named) }, half, nil}},
		"restored to the observed": {observe, pend, assume, settle(half),
			{"observe", func(x *index.Index) { x.SetClaim(allocated(2)) }, half, nil},
			{"restore", func(x *index.Index) { x.RestoreClaim(named) }, half, nil}},
		"released and written again before it is observed": {observe, pend, assume, settle(half),
			{"assume elsewhere", func(x *index.Index) { x.AssumeClaim(claimOf("a", 4, gpu1)) }, all, nil},
			{"restore", func(x *index.Index) { x.RestoreClaim(named) }, all, nil},
			{"observe what was written first", func(x *index.Index) { x.SetClaim(allocated(2)) }, all, nil},
			{"observe released", func(x *index.Index) { x.SetClaim(bare(3)) }, all, nil}},
		"older ones come late": {observe, pend, assume, settle(half),
			{"observe the old", func(x *index.Index) { x.SetClaim(bare(1)) }, half, nil},
			{"assume the old", func(x *index.Index) { x.AssumeClaim(bare(1)) }, half, nil}},
		"deleted in flight": {observe, pend, remove(half, "a"), settle(all)},
		"assumed after its deletion": {observe, pend, remove(half, "a"),
			{"assume", func(x *index.Index) { x.AssumeClaim(allocated(8)) }, half, []string{"a"}}, settle(all)},
		"assumed what a failed write may have allocated": {observe,
			{"assume", func(x *index.Index) { x.AssumeClaim(allocated(2)) }, half, nil},
			{"observe what was before the write", func(x *index.Index) { x.SetClaim(bare(2)) }, half, nil},
			{"restore", func(x *index.Index) { x.RestoreClaim(named) }, half, nil},
			{"observe the written", func(x *index.Index) { x.SetClaim(allocated(3)) }, half, nil},
			remove(all)},
		"assumed before it is observed": {
			{"assume", func(x *index.Index) { x.AssumeClaim(allocated(2)) }, half, nil}, remove(all)},
		"made again under its name": {observe, pend, assume, settle(half),
			{"observe another", func(x *index.Index) { x.SetClaim(other) }, all, nil},
			{"assume the first", func(x *index.Index) { x.AssumeClaim(allocated(3)) }, all, nil},
			remove(all)},
		"another under its name while nothing is written": {pend,
			{"take back what was released", func(x *index.Index) {
				x.AssumeClaim(bare(2))
				x.RestoreClaim(named)
			}, half, []string{"a"}},
			{"assume another", func(x *index.Index) { x.AssumeClaim(other) }, half, []string{"a"}},
			{"assume", func(x *index.Index) { x.AssumeClaim(allocated(10)) }, half, nil}},
		"shared by pods": {observe, pend, pend,
			{"settle twice", func(x *index.Index) { x.RemovePendingAllocation("uid-a"); x.RemovePendingAllocation("uid-a") }, all, nil}},
		"written elsewhere than decided": {observe,
			{"pend", func(x *index.Index) { x.AddPendingAllocation(claimOf("a", 1, gpu1)) }, all, []string{"a"}},
			{"observe", func(x *index.Index) { x.SetClaim(allocated(2)) }, half, []string{"a"}}},
		"admin access": {
			{"observe", func(x *index.Index) { x.SetClaim(claimOf("a", 1, admin)) }, all, nil}},
		"claims before slices": {
			{"observe", func(x *index.Index) {
				list := publish(t, n, 1, 1)
				for _, s := range list {
					x.DeleteSlice(s)
				}
				x.SetClaim(allocated(1))
				set(x, list)
			}, half, nil}},
		"an extended resource": {
			{"pend", func(x *index.Index) { x.AddPendingAllocation(claimOf("<extended-resources>", 1, first)) }, half, []string{"<extended-resources>"}},
			{"observe", func(x *index.Index) { x.SetClaim(claimOf("pod-x", 2, first)) }, half, nil},
			{"settle", func(x *index.Index) { x.RemovePendingAllocation("uid-<extended-resources>") }, half, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newIndex()
			set(x, publish(t, n, 1, 1))
			for _, s := range steps {
				s.do(x)
				got := known(t, x, "n1")
				var inFlight []string
				for _, h := range got.Held {
					if h.InFlight {
						inFlight = append(inFlight, h.Claim.Name)
					}
				}
				if free := got.Fit.GPUs[0].Occupancy.Free(); free != s.free || !slices.Equal(inFlight, s.inFlight) || got.DelegateReason != nil {
					t.Errorf("after %s: free %v, want %v; in flight %q, want %q; unclear %v", s.name, free, s.free, inFlight, s.inFlight, got.DelegateReason)
				}
			}
		})
	}
}

// TestInFlightOfTwo checks that a node changes when the allocation of one of two claims that hold the same device is
// written: the list then contains the other claim.
func TestInFlightOfTwo(t *testing.T) {
	t.Parallel()
	n := machine(t, "h100x2", "n1")
	device := result("n1", mig(n, 0, 9, 0))
	for name, first := range map[string]func(x *index.Index){
		"with one that is written":   func(x *index.Index) { x.SetClaim(claimOf("a", 1, device)) },
		"with one that is in flight": func(x *index.Index) { x.AddPendingAllocation(claimOf("a", 1, device)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newIndex()
			set(x, publish(t, n, 1, 1))
			first(x)
			x.AddPendingAllocation(claimOf("b", 1, device))
			before := known(t, x, "n1")
			x.AssumeClaim(claimOf("b", 2, device))
			after := known(t, x, "n1")
			if _, latest := x.Changed(before.Revision); latest <= before.Revision || after.Revision <= before.Revision {
				t.Errorf("revision %d of the node, %d of the index, after %d", after.Revision, latest, before.Revision)
			}
			if !slices.ContainsFunc(after.Held, func(h index.Held) bool { return h.Claim.Name == "b" && !h.InFlight }) {
				t.Errorf("held %+v, want b's among it, written", after.Held)
			}
		})
	}
}

// TestUnclear checks that contradictions are reported by claim and device, and that their devices are never free.
func TestUnclear(t *testing.T) {
	t.Parallel()
	n := machine(t, "h100x2", "n1")
	share := result("n1", whole(n, 0)+"-timeshare")
	share.ShareID = new(types.UID("s1"))
	for name, test := range map[string]struct {
		do   func(x *index.Index)
		want []string
		free int
	}{
		"held twice": {func(x *index.Index) {
			x.SetClaim(claimOf("b", 1, result("n1", whole(n, 0))))
			x.SetClaim(claimOf("a", 1, result("n1", mig(n, 0, 9, 4))))
		}, []string{"team/b", whole(n, 0), "in use as mig"}, 0},
		"not published": {func(x *index.Index) {
			x.SetClaim(claimOf("a", 1, result("n1", "gpu-of-old")))
		}, []string{"team/a", "gpu-of-old", "not published"}, 8},
		"withheld": {func(x *index.Index) {
			m := machine(t, "h100x2", "n1")
			m.GPUs[0].Withheld = 3
			set(x, publish(t, m, 2, 2))
			x.SetClaim(claimOf("a", 1, result("n1", mig(n, 0, 19, 1))))
		}, []string{"team/a", mig(n, 0, 19, 1), "withheld"}, 6},
		"no share of a shared device": {func(x *index.Index) {
			x.SetClaim(claimOf("a", 1, result("n1", whole(n, 0)+"-mps")))
		}, []string{"team/a", "-mps", "lacks a share ID"}, 0},
		"a share held twice": {func(x *index.Index) {
			x.SetClaim(claimOf("a", 1, share))
			x.SetClaim(claimOf("b", 1, share))
		}, []string{"team/b", "-timeshare", "another claim"}, 0},
		"an incomplete pool": {func(x *index.Index) {
			x.DeleteSlice(publish(t, n, 1, 1)[1])
		}, []string{"n1-" + driver, "1 of 2 ResourceSlices"}, -1},
		"a strange device": {func(x *index.Index) {
			list := publish(t, n, 2, 2)
			delete(list[1].Spec.Devices[0].Attributes, "type")
			set(x, list)
		}, []string{"read device", "type"}, 8},
		"two pools": {func(x *index.Index) {
			second := publish(t, n, 1, 1)
			for _, s := range second {
				s.Name += "-b"
				s.Spec.Driver, s.Spec.Pool.Name = nvidia, wire.PoolName("n1", nvidia)
			}
			set(x, second)
		}, []string{nvidia, "at most one pool"}, 8},
		"a pool in another name": {func(x *index.Index) {
			second := publish(t, n, 1, 1)
			for _, s := range second {
				s.Name += "-b"
				s.Spec.Pool.Name = "second"
			}
			set(x, second)
		}, []string{`pool "second" of node n1`, "not the pool of its node"}, 8},
		"a pool beyond a bound": {func(x *index.Index) {
			list := publish(t, n, 2, 2)
			for i := range wire.MaxDevices {
				d := *list[1].Spec.Devices[0].DeepCopy()
				d.Name = fmt.Sprint("more-", i)
				list[1].Spec.Devices = append(list[1].Spec.Devices, d)
			}
			set(x, list)
		}, []string{"devices, at most 128", "too large"}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := index.New(index.Config{Drivers: []string{driver, nvidia}})
			set(x, publish(t, n, 1, 1))
			test.do(x)
			got := known(t, x, "n1")
			if got.DelegateReason == nil {
				t.Fatal("clear")
			}
			for _, part := range test.want {
				if !strings.Contains(got.DelegateReason.Error(), part) {
					t.Errorf("%q lacks %q", got.DelegateReason, part)
				}
			}
			if test.free < 0 {
				if len(got.Fit.Devices) > 0 {
					t.Errorf("%d devices to choose from", len(got.Fit.Devices))
				}
			} else if free := got.Fit.GPUs[0].Occupancy.Free().Count(); free != test.free {
				t.Errorf("%d slices free, want %d", free, test.free)
			}
		})
	}
}
