package index_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// TestSlices checks the state of two nodes while their ResourceSlices are added and deleted.
func TestSlices(t *testing.T) {
	t.Parallel()
	h100, t4 := machine(t, "h100x2", "n1"), machine(t, "t4x1", "n1")
	first := publish(t, h100, 1, 1)
	second := publish(t, t4, 2, 2)
	later, stolen := publish(t, t4, 3, 3), publish(t, t4, 3, 3)
	for i := range later {
		later[i].Name += "-later"
		stolen[i].Name += "-stolen"
		stolen[i].Spec.NodeName = new("n2")
	}
	again := publish(t, h100, 1, 1)
	again[0].UID = "made-again"
	// seen has the GPUs of n1 and n2, -1 for an absent node, and the number of reads.
	type seen struct {
		n1, n2  int
		unclear bool
		reads   uint64
		roaming int
		foreign bool
	}
	type step struct {
		name string
		do   func(x *index.Index)
		want seen
	}
	for name, steps := range map[string][]step{
		"slice by slice": {
			{"first", func(x *index.Index) { x.SetSlice(first[0]) }, seen{n1: 0, n2: -1, unclear: true}},
			{"all", func(x *index.Index) { x.SetSlice(first[1]) }, seen{n1: 2, n2: -1, reads: 1}},
			{"again", func(x *index.Index) { set(x, first) }, seen{n1: 2, n2: -1, reads: 1}},
			{"again as other objects", func(x *index.Index) { set(x, publish(t, h100, 1, 1)) }, seen{n1: 2, n2: -1, reads: 1}},
			{"one is gone", func(x *index.Index) { x.DeleteSlice(first[0]) }, seen{n1: 0, n2: -1, unclear: true, reads: 1}},
			{"both are gone", func(x *index.Index) { x.DeleteSlice(first[1]) }, seen{n1: -1, n2: -1, reads: 1}},
		},
		"a new generation": {
			{"old", func(x *index.Index) { set(x, first) }, seen{n1: 2, n2: -1, reads: 1}},
			{"half of the new", func(x *index.Index) { x.SetSlice(second[1]) }, seen{n1: 0, n2: -1, unclear: true, reads: 1}},
			{"new", func(x *index.Index) { x.SetSlice(second[0]) }, seen{n1: 1, n2: -1, reads: 2}},
			{"old comes late", func(x *index.Index) { set(x, first) }, seen{n1: 1, n2: -1, reads: 2}},
		},
		"another node publishes under the pool's name": {
			{"own", func(x *index.Index) { set(x, first) }, seen{n1: 2, n2: -1, reads: 1}},
			{"of the other node", func(x *index.Index) { set(x, stolen) }, seen{n1: 2, n2: 0, reads: 1}},
			{"own is gone", func(x *index.Index) { x.DeleteSlice(first[0]); x.DeleteSlice(first[1]) }, seen{n1: -1, n2: 0, reads: 1}},
		},
		"made again under its name": {
			{"new", func(x *index.Index) { x.SetSlice(again[0]); x.SetSlice(again[1]) }, seen{n1: 2, n2: -1, reads: 1}},
			{"old is gone", func(x *index.Index) { x.DeleteSlice(first[0]) }, seen{n1: 2, n2: -1, reads: 1}},
		},
		"the newest generation is withdrawn": {
			{"both", func(x *index.Index) { set(x, first); set(x, later) }, seen{n1: 1, n2: -1, reads: 2}},
			{"withdrawn", func(x *index.Index) { x.DeleteSlice(later[0]); x.DeleteSlice(later[1]) }, seen{n1: 2, n2: -1, unclear: false, reads: 3}},
		},
		"a foreign driver": {
			{"alone", func(x *index.Index) { x.SetSlice(foreignSlice("n1", "nics", 1, "nic0")) }, seen{n1: 0, n2: -1, foreign: true}},
			{"in addition to ours", func(x *index.Index) { set(x, first) }, seen{n1: 2, n2: -1, foreign: true, reads: 1}},
			{"incomplete", func(x *index.Index) {
				s := foreignSlice("n1", "nics", 2, "nic0")
				s.Spec.Pool.ResourceSliceCount = 9
				x.SetSlice(s)
			}, seen{n1: 2, n2: -1, foreign: true, reads: 2}},
		},
		"devices that roam": {
			{"of all nodes", func(x *index.Index) { x.SetSlice(foreignSlice("", "fabric", 1, "port")) }, seen{n1: -1, n2: -1, roaming: 1}},
			{"of two nodes", func(x *index.Index) {
				x.SetSlice(foreignSlice("n1", "spread", 1, "a"))
				x.SetSlice(foreignSlice("n2", "spread", 1, "b"))
			}, seen{n1: -1, n2: -1, roaming: 3}},
			{"bound again", func(x *index.Index) { x.DeleteSlice(foreignSlice("n2", "spread", 1)) }, seen{n1: 0, n2: -1, roaming: 1, foreign: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newIndex()
			for _, s := range steps {
				s.do(x)
				got := seen{n1: -1, n2: -1, reads: x.Stats().Reads, roaming: len(x.NonLocalSlices())}
				if n, ok := x.Node("n1"); ok {
					got.n1, got.unclear, got.foreign = len(n.Fit.GPUs), n.DelegateReason != nil, n.Foreign
				}
				if n, ok := x.Node("n2"); ok {
					got.n2 = len(n.Fit.GPUs)
				}
				if diff := cmp.Diff(s.want, got, cmp.AllowUnexported(seen{})); diff != "" {
					t.Errorf("after %s (-want +got):\n%s", s.name, diff)
				}
			}
		})
	}
}

// TestNodeCannotReplaceAnotherNodesPool checks that ResourceSlices of one node under the pool's name of another one change neither the devices nor the
// allocations of that node, whatever their generation is, and are not evaluated by the in-tree allocator either.
func TestNodeCannotReplaceAnotherNodesPool(t *testing.T) {
	t.Parallel()
	x := newIndex()
	victim := machine(t, "h100x2", "n1")
	set(x, publish(t, victim, 1, 1))
	set(x, publish(t, machine(t, "t4x1", "n2"), 1, 1))
	x.SetClaim(claimOf("a", 1, result("n1", whole(victim, 0))))
	before := known(t, x, "n1")
	_, since := x.Changed(0)
	for _, generation := range []int{0, 1, 1 << 62} {
		stolen := publish(t, victim, generation, 1)
		for _, s := range stolen {
			s.Name = fmt.Sprintf("stolen-%d-%s", generation, s.Name)
			s.Spec.NodeName = new("n2")
		}
		set(x, stolen)
		everywhere := publish(t, victim, generation, 1)
		for _, s := range everywhere {
			s.Name = fmt.Sprintf("everywhere-%d-%s", generation, s.Name)
			s.Spec.NodeName, s.Spec.AllNodes = nil, new(true)
		}
		set(x, everywhere)
	}
	if n, ok := x.Node("n1"); !ok || n != before {
		t.Errorf("node n1 is published: %v, and changed: %v", ok, n != before)
	}
	changed, _ := x.Changed(since)
	attacker := known(t, x, "n2")
	if len(changed) != 1 || attacker.DelegateReason == nil || len(attacker.Fit.GPUs) != 1 || len(attacker.Slices) != 2 || len(attacker.Held) != 0 {
		t.Errorf("%d nodes changed; n2 has %d GPUs, %d ResourceSlices, %d held devices, unclear: %v",
			len(changed), len(attacker.Fit.GPUs), len(attacker.Slices), len(attacker.Held), attacker.DelegateReason)
	}
	if slices := x.NonLocalSlices(); len(slices) > 0 {
		t.Errorf("%d ResourceSlices of all nodes", len(slices))
	}
}

// TestTaints checks that a taint of a rule, which arrives with the same version of the ResourceSlice, is applied, and
// that only a change of taints changes Node.Content.
func TestTaints(t *testing.T) {
	t.Parallel()
	x := newIndex()
	set(x, publish(t, machine(t, "h100x2", "n1"), 1, 1))
	before := known(t, x, "n1")
	tainted := publish(t, machine(t, "h100x2", "n1"), 1, 1)
	tainted[1].Spec.Devices[3].Taints = []resourceapi.DeviceTaint{{Key: "broken", Effect: resourceapi.DeviceTaintEffectNoExecute}}
	set(x, tainted)
	after := known(t, x, "n1")
	if before.Content == after.Content || len(after.Devices[3].Taints) != 1 || len(before.Devices[3].Taints) != 0 {
		t.Errorf("content %d, then %d, taints %v", before.Content, after.Content, after.Devices[3].Taints)
	}
	x.SetClaim(claimOf("a", 1, result("n1", after.Devices[0].Name)))
	if held := known(t, x, "n1"); held.Content != after.Content || held.Revision == after.Revision {
		t.Errorf("content %d, revision %d after %d and %d", held.Content, held.Revision, after.Content, after.Revision)
	}
}

// TestChanged checks what Changed returns.
func TestChanged(t *testing.T) {
	t.Parallel()
	x := newIndex()
	n1, n2 := machine(t, "h100x2", "n1"), machine(t, "h100x2", "n2")
	_, start := x.Changed(0)
	set(x, publish(t, n1, 1, 1))
	set(x, publish(t, n2, 1, 1))
	changes := func(since uint64) ([]string, uint64) {
		var names []string
		nodes, now := x.Changed(since)
		for name, n := range nodes {
			if known, ok := x.Node(name); ok != (n != nil) || known != n {
				t.Errorf("node %s is one by its changes and another by its name", name)
			}
			names = append(names, name)
		}
		slices.Sort(names)
		return names, now
	}
	for _, s := range []struct {
		name string
		do   func()
		want []string
	}{
		{"start", func() {}, []string{"n1", "n2"}},
		{"nothing", func() {}, nil},
		{"claim", func() { x.SetClaim(claimOf("a", 1, result("n1", whole(n1, 0)))) }, []string{"n1"}},
		{"the claim is reserved for another pod", func() { x.SetClaim(claimOf("a", 2, result("n1", whole(n1, 0)))) }, nil},
		{"claim of two nodes", func() {
			x.SetClaim(claimOf("b", 1, result("n1", whole(n1, 1)), result("n2", whole(n2, 1))))
		}, []string{"n1", "n2"}},
		{"written", func() {
			x.AddPendingAllocation(claimOf("c", 1, result("n2", whole(n2, 0))))
			_, start = changes(start)
			x.AssumeClaim(claimOf("c", 2, result("n2", whole(n2, 0))))
			x.RemovePendingAllocation("uid-c")
		}, nil},
		{"gone", func() {
			for _, s := range publish(t, n2, 1, 1) {
				x.DeleteSlice(s)
			}
		}, []string{"n2"}},
	} {
		s.do()
		var got []string
		if got, start = changes(start); !slices.Equal(got, s.want) {
			t.Errorf("after %s: %q changed, want %q", s.name, got, s.want)
		}
	}
	if got, _ := changes(0); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("%q are all nodes", got)
	}
}

// TestGone checks that nodes that are added and removed leave only the records that readers may have missed.
func TestGone(t *testing.T) {
	t.Parallel()
	x := newIndex()
	const many = 40000
	for i := range many {
		s := foreignSlice("n", "nics", i+1)
		name := "n" + string(rune('a'+i%26)) + s.ResourceVersion
		s.Spec.NodeName = &name
		s.UID = "uid"
		x.SetSlice(s)
		x.DeleteSlice(s)
	}
	nodes, now := x.Changed(1)
	if len(nodes) < 10000 || len(nodes) > 20000 {
		t.Errorf("%d of %d nodes that are gone are remembered", len(nodes), many)
	}
	if nodes, _ := x.Changed(now - 10); len(nodes) != 5 {
		t.Errorf("%d nodes changed in the last 10 events, want 5", len(nodes))
	}
}

// TestMapsNodeResources follows ResourceSlices whose devices provide resources of their node, and have them no more.
func TestMapsNodeResources(t *testing.T) {
	t.Parallel()
	x := index.New(index.Config{Drivers: []string{driver}})
	version := 0
	slice := func(name string, mapped bool) *resourceapi.ResourceSlice {
		version++
		s := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			Driver: "cpu.example.com", NodeName: new("n1"), Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "a"}, {Name: "b"}},
		}}
		s.Name, s.UID, s.ResourceVersion = name, types.UID(name), fmt.Sprint(version)
		if mapped {
			s.Spec.Devices[1].NodeAllocatableResources = map[corev1.ResourceName]resourceapi.NodeAllocatableResource{corev1.ResourceCPU: {}}
		}
		return s
	}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"without", func() { x.SetSlice(slice("one", false)) }, false},
		{"with", func() { x.SetSlice(slice("one", true)) }, true},
		{"with, again", func() { x.SetSlice(slice("one", true)) }, true},
		{"two with", func() { x.SetSlice(slice("two", true)) }, true},
		{"one without", func() { x.SetSlice(slice("one", false)) }, true},
		{"an old one", func() { old := slice("one", true); old.ResourceVersion = "1"; x.SetSlice(old) }, true},
		{"the other is gone", func() { x.DeleteSlice(slice("two", true)) }, false},
		{"gone twice", func() { x.DeleteSlice(slice("two", true)) }, false},
	} {
		step.do()
		if got := x.MapsNodeResources(); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}
