package index_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// TestModel plays random streams of events, including duplicate, late and contradicting ones, and compares every answer
// with the model's.
func TestModel(t *testing.T) {
	t.Parallel()
	templates, devices := universe(t)
	rapid.Check(t, func(t *rapid.T) {
		p := &play{index: newIndex(), model: newModel(), templates: templates, devices: devices, mirror: map[string]*index.Node{}, seen: map[string]*sight{}}
		t.Repeat(map[string]func(*rapid.T){
			"set slice":    p.setSlice,
			"set pool":     p.setPool,
			"delete slice": p.deleteSlice,
			"set claim":    p.setClaim,
			"delete claim": p.deleteClaim,
			"pend":         p.pend,
			"settle":       p.settle,
			"assume":       p.assume,
			"restore":      p.restore,
			"promise":      p.promise,
			"redeem":       p.redeem,
			"":             p.check,
		})
	})
}

// nodes are the nodes of the play; one of them has no published devices.
var nodes = []string{"n1", "n2", "n3"}

// play is one stream of events.
type play struct {
	index     *index.Index
	model     *model
	templates [][]*resourceapi.ResourceSlice
	devices   []resourceapi.DeviceRequestAllocationResult
	// mirror is the state of a reader of Changed at the revision since.
	mirror map[string]*index.Node
	since  uint64
	// seen is the recorded state of a node at a revision.
	seen map[string]*sight
}

// universe returns pools that nodes may publish and devices that claims may hold.
func universe(tb testing.TB) (pools [][]*resourceapi.ResourceSlice, devices []resourceapi.DeviceRequestAllocationResult) {
	h100, t4 := machine(tb, "h100x2", "n1"), machine(tb, "t4x1", "n2")
	withheld := machine(tb, "h100x2", "n1")
	withheld.GPUs[1].Withheld = 0x81
	moved := publish(tb, withheld, 3, 3)
	for _, s := range moved {
		s.Spec.NodeName = &nodes[1]
	}
	second := publish(tb, machine(tb, "t4x1", "n1"), 1, 1)
	for _, s := range second {
		s.Name, s.Spec.Pool.Name = s.Name+"-second", "second"
	}
	spread := []*resourceapi.ResourceSlice{foreignSlice("n1", "spread", 1, "s1"), foreignSlice("n2", "spread", 1, "s2")}
	for _, s := range spread {
		s.Spec.Pool.ResourceSliceCount = 2
	}
	pools = [][]*resourceapi.ResourceSlice{
		publish(tb, h100, 1, 1), publish(tb, withheld, 2, 2), moved, publish(tb, t4, 1, 1), second,
		{foreignSlice("n1", "nics", 1, "nic0", "nic1")}, {foreignSlice("", "fabric", 1, "port0")}, spread,
	}
	share := func(name string, id types.UID, shares int) resourceapi.DeviceRequestAllocationResult {
		r := result("n1", name)
		r.ShareID = &id
		r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{wire.Shares: *resource.NewQuantity(int64(shares), resource.DecimalSI)}
		return r
	}
	admin := result("n1", whole(h100, 0))
	admin.AdminAccess = new(true)
	devices = []resourceapi.DeviceRequestAllocationResult{
		result("n1", whole(h100, 0)), result("n1", whole(h100, 1)), result("n2", whole(t4, 0)), admin,
		result("n1", mig(h100, 0, 9, 0)), result("n1", mig(h100, 0, 9, 4)), result("n1", mig(h100, 0, 19, 1)), result("n1", mig(h100, 1, 19, 0)),
		share(whole(h100, 1)+"-mps", "m1", 4), share(whole(h100, 1)+"-mps", "m2", 7), share(whole(h100, 1)+"-timeshare", "t1", 1),
		result("n1", whole(h100, 0)+"-mps"), result("n1", whole(h100, 0)+"-monitor"), result("n1", "unknown"),
	}
	for pool, names := range map[string][]string{"nics": {"nic0", "nic1"}, "fabric": {"port0"}, "spread": {"s1"}, "unpublished": {"x"}} {
		for _, name := range names {
			devices = append(devices, resourceapi.DeviceRequestAllocationResult{Request: "f", Driver: foreign, Pool: pool, Device: name})
		}
	}
	slices.SortFunc(devices, func(a, b resourceapi.DeviceRequestAllocationResult) int {
		return len(a.Device) - len(b.Device)
	})
	return pools, devices
}

// slice draws a ResourceSlice at some version, with or without a taint.
func (p *play) slice(t *rapid.T) *resourceapi.ResourceSlice {
	pool := rapid.SampledFrom(p.templates).Draw(t, "pool")
	return p.version(t, rapid.SampledFrom(pool).Draw(t, "slice"))
}

func (p *play) version(t *rapid.T, template *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	s := *template
	s.ResourceVersion = fmt.Sprint(rapid.IntRange(1, 12).Draw(t, "version"))
	if len(s.Spec.Devices) > 0 && rapid.Bool().Draw(t, "tainted") {
		s.Spec.Devices = slices.Clone(s.Spec.Devices)
		s.Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "k", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	return &s
}

func (p *play) setSlice(t *rapid.T) {
	s := p.slice(t)
	p.index.SetSlice(s)
	p.model.setSlice(s)
}

func (p *play) setPool(t *rapid.T) {
	for _, template := range rapid.SampledFrom(p.templates).Draw(t, "pool") {
		s := p.version(t, template)
		p.index.SetSlice(s)
		p.model.setSlice(s)
	}
}

func (p *play) deleteSlice(t *rapid.T) {
	s := p.slice(t)
	if rapid.IntRange(0, 3).Draw(t, "made again") == 0 {
		s.UID = "another"
	}
	p.index.DeleteSlice(s)
	p.model.deleteSlice(s)
}

// claim draws a claim: one of two that share each name, at some version, with some devices.
func (p *play) claim(t *rapid.T) *resourceapi.ResourceClaim {
	c := claimOf(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"), rapid.IntRange(1, 12).Draw(t, "version"), p.some(t)...)
	if rapid.IntRange(0, 3).Draw(t, "made again") == 0 {
		c.UID += "-2"
	}
	return c
}

func (p *play) some(t *rapid.T) []resourceapi.DeviceRequestAllocationResult {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(p.devices), 0, 3, func(r resourceapi.DeviceRequestAllocationResult) string {
		return device(index.Held{Result: r})
	}).Draw(t, "devices")
}

func (p *play) setClaim(t *rapid.T) {
	c := p.claim(t)
	p.index.SetClaim(c)
	p.model.setClaim(c)
}

func (p *play) deleteClaim(t *rapid.T) {
	c := p.claim(t)
	p.index.DeleteClaim(c)
	p.model.deleteClaim(c)
}

func (p *play) pend(t *rapid.T) {
	c := p.claim(t)
	p.index.AddPendingAllocation(c)
	p.model.pend(c)
}

func (p *play) settle(t *rapid.T) {
	c := p.claim(t)
	p.index.RemovePendingAllocation(c.UID)
	delete(p.model.pending, c.UID)
}

func (p *play) assume(t *rapid.T) {
	c := p.claim(t)
	p.index.AssumeClaim(c)
	p.model.assume(c)
}

func (p *play) restore(t *rapid.T) {
	name := nameOf(p.claim(t))
	p.index.RestoreClaim(name)
	if a := p.model.assumed[name]; a != nil && a.Status.Allocation == nil {
		delete(p.model.assumed, name)
	}
}

var pods = []types.UID{"p1", "p2"}

func (p *play) promise(t *rapid.T) {
	pod := rapid.SampledFrom(pods).Draw(t, "pod")
	to := promised{rapid.SampledFrom(nodes).Draw(t, "node"), p.some(t)}
	p.index.Nominate(pod, to.node, to.devices)
	p.model.promises[pod] = to
}

func (p *play) redeem(t *rapid.T) {
	pod := rapid.SampledFrom(pods).Draw(t, "pod")
	p.index.EndNomination(pod)
	delete(p.model.promises, pod)
}

// check compares the results of all methods.
func (p *play) check(t *rapid.T) {
	changed, now := p.index.Changed(p.since)
	for name, n := range changed {
		if n != nil && n.Revision <= p.since || now <= p.since {
			t.Fatalf("node %s changed at %v, read since %d, now %d", name, n, p.since, now)
		}
		p.mirror[name] = n
	}
	p.since = now
	all, _ := p.index.Changed(0)
	var sum index.Stats
	for _, name := range nodes {
		n, ok := p.index.Node(name)
		want := p.model.node(name, "")
		if ok != (want != nil) || all[name] != n || revision(p.mirror[name]) != revision(n) {
			t.Fatalf("node %s: known %v at %d, published %v, at %d by all, at %d by changes", name, ok, revision(n), want != nil, revision(all[name]), revision(p.mirror[name]))
		}
		if !ok {
			delete(p.seen, name)
			continue
		}
		if diff := diffOf(want, sightOf(n), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("node %s, unclear %v (-want +got):\n%s", name, n.DelegateReason, diff)
		}
		for _, pod := range pods {
			if p.model.promises[pod].node != name {
				if n.ForPod(pod) != n {
					t.Fatalf("node %s is another one for %s, to whom nothing is promised", name, pod)
				}
				continue
			}
			if diff := diffOf(p.model.node(name, pod), sightOf(n.ForPod(pod)), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("node %s for %s (-want +got):\n%s", name, pod, diff)
			}
		}
		p.same(t, n)
		sum.Nodes++
		l := n.Load()
		sum.Load.GPUs, sum.Load.Idle, sum.Load.Slices, sum.Load.Free = sum.Load.GPUs+l.GPUs, sum.Load.Idle+l.Idle, sum.Load.Slices+l.Slices, sum.Load.Free+l.Free
		if n.DelegateReason != nil {
			sum.Delegated++
		}
	}
	p.checkRoaming(t)
	p.checkStats(t, sum)
}

// diffOf is cmp.Diff with a fast check for equality: with cmp.Diff alone the test takes five times as long.
func diffOf(want, got any, options ...cmp.Option) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got, options...)
}

func revision(n *index.Node) uint64 {
	if n == nil {
		return 0
	}
	return n.Revision
}

// same checks that a node at a revision that was seen before is unchanged, except for Held.InFlight.
func (p *play) same(t *rapid.T, n *index.Node) {
	key := fmt.Sprintf("%s at %d", n.Name, n.Revision)
	now := sightOf(n)
	now.Held = slices.Clone(now.Held)
	for i := range now.Held {
		now.Held[i].InFlight = false
	}
	if before := p.seen[key]; before != nil {
		if diff := diffOf(before, now); diff != "" {
			t.Fatalf("node %s changed (-before +now):\n%s", key, diff)
		}
	}
	p.seen[key] = now
}

func (p *play) checkRoaming(t *rapid.T) {
	var want []*resourceapi.ResourceSlice
	roams := map[string]bool{}
	pools := p.model.pools()
	for _, key := range slices.Sorted(maps.Keys(pools)) {
		if onNode(pools[key]) == "" {
			roams[key] = true
			want = append(want, pools[key]...)
		}
	}
	if got := p.index.NonLocalSlices(); !slices.Equal(want, got) {
		t.Fatalf("roaming %v, want %v", got, want)
	}
	var held []index.Held
	for _, h := range p.model.held() {
		if roams[heldKey(h)] {
			held = append(held, h)
		}
	}
	if diff := diffOf(held, p.index.NonLocalHeld()); diff != "" {
		t.Fatalf("held of what roams (-want +got):\n%s", diff)
	}
}

func (p *play) checkStats(t *rapid.T, sum index.Stats) {
	got := p.index.Stats()
	for _, promise := range p.model.promises {
		if len(promise.devices) > 0 {
			sum.Nominations++
		}
	}
	sum.Reads, sum.Devices, sum.InFlight = got.Reads, got.Devices, got.InFlight
	if got != sum {
		t.Fatalf("stats %+v, want %+v", got, sum)
	}
}

// TestOrder checks that the state of a node does not depend on the order of events.
func TestOrder(t *testing.T) {
	t.Parallel()
	templates, devices := universe(t)
	rapid.Check(t, func(t *rapid.T) {
		var events []func(x *index.Index)
		for _, list := range templates {
			for _, s := range list {
				events = append(events, func(x *index.Index) { x.SetSlice(s) })
			}
		}
		for i, r := range devices {
			c := claimOf(fmt.Sprint("c", i), 1, r)
			events = append(events, func(x *index.Index) { x.SetClaim(c) })
		}
		events = rapid.Permutation(events).Draw(t, "events")
		x, y := newIndex(), newIndex()
		for i := range events {
			events[i](x)
			events[len(events)-1-i](y)
		}
		for _, name := range nodes[:2] {
			a, _ := x.Node(name)
			b, _ := y.Node(name)
			if diff := cmp.Diff(sightOf(a), sightOf(b)); diff != "" || fmt.Sprint(a.DelegateReason) != fmt.Sprint(b.DelegateReason) {
				t.Fatalf("node %s, unclear %v and %v (-one way +the other):\n%s", name, a.DelegateReason, b.DelegateReason, diff)
			}
		}
	})
}
