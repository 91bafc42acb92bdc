package index_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// TestTracker plays actions of a scheduler and other clients on claims against kube-scheduler's tracker and an index
// that receives events later. It checks that no device that the tracker holds is free in the index, except devices
// whose release is visible in the API server's answer to a later write.
func TestTracker(t *testing.T) {
	logger, ctx := ktesting.NewTestContext(t)
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	rapid.Check(t, func(t *rapid.T) {
		s := &scheduler{index: newIndex(), api: map[string]*resourceapi.ResourceClaim{}, held: map[types.UID]*resourceapi.ResourceClaim{}, written: map[types.UID]*resourceapi.ResourceClaim{}}
		claims := assumecache.NewAssumeCache(logger, s, "ResourceClaim", "", nil)
		s.tracker = dynamicresources.NewDRAManager(ctx, claims, nil, factory).ResourceClaims()
		s.index.SetSlice(foreignSlice("", "fabric", 1, "d0", "d1", "d2", "d3"))
		// Each run is short, since many drawn actions do not apply.
		for range 10 {
			t.Repeat(map[string]func(*rapid.T){
				"create":    s.create,
				"release":   s.release,
				"delete":    s.remove,
				"observe":   s.observe,
				"reserve":   s.reserve,
				"bind":      s.bind,
				"unreserve": s.unreserve,
				"":          s.check,
			})
		}
		for s.late < len(s.events) {
			s.follow()
		}
		s.checkTruth(t)
	})
}

// scheduler simulates a scheduler and an API server.
type scheduler struct {
	index   *index.Index
	tracker fwk.ResourceClaimTracker
	// handler is the tracker's handler. It has received the events up to seen, the index those up to late.
	handler    cache.ResourceEventHandler
	events     []event
	seen, late int
	// api are the claims by name, version is the last resourceVersion, held is what is in flight, written is what the
	// scheduler wrote last.
	api           map[string]*resourceapi.ResourceClaim
	version       int
	held, written map[types.UID]*resourceapi.ResourceClaim
}

// event is an informer event: an addition if before is nil, a deletion if after is nil.
type event struct{ before, after *resourceapi.ResourceClaim }

// AddEventHandler stores the tracker's handler.
func (s *scheduler) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.handler = h
	return nil, nil
}

var claimNames = []string{"a", "b", "c"}

// write stores the new state of a claim; nil deletes it.
func (s *scheduler) write(name string, after *resourceapi.ResourceClaim) {
	before := s.api[name]
	s.version++
	if after == nil {
		delete(s.api, name)
	} else {
		after.ResourceVersion = fmt.Sprint(s.version)
		s.api[name] = after
	}
	s.events = append(s.events, event{before, after})
}

func (s *scheduler) create(t *rapid.T) {
	name := rapid.SampledFrom(claimNames).Draw(t, "name")
	if s.api[name] != nil {
		t.Skip("exists")
	}
	c := claimOf(name, 0)
	c.UID = types.UID(fmt.Sprint(name, s.version))
	s.write(name, c)
}

// existing draws a claim that the API server has.
func (s *scheduler) existing(t *rapid.T) *resourceapi.ResourceClaim {
	c := s.api[rapid.SampledFrom(claimNames).Draw(t, "name")]
	if c == nil {
		t.Skip("does not exist")
	}
	return c.DeepCopy()
}

func (s *scheduler) release(t *rapid.T) {
	c := s.existing(t)
	c.Status.Allocation = nil
	s.write(c.Name, c)
}

func (s *scheduler) remove(t *rapid.T) { s.write(s.existing(t).Name, nil) }

// observe passes the next event to the tracker, and to the index some that the tracker has received.
func (s *scheduler) observe(t *rapid.T) {
	if s.seen < len(s.events) {
		switch e := s.events[s.seen]; {
		case e.before == nil:
			s.handler.OnAdd(e.after, false)
		case e.after == nil:
			s.handler.OnDelete(e.before)
		default:
			s.handler.OnUpdate(e.before, e.after)
		}
		s.seen++
	}
	for range rapid.IntRange(0, 2).Draw(t, "follow") {
		if s.late < s.seen {
			s.follow()
		}
	}
}

// follow passes the next event to the index.
func (s *scheduler) follow() {
	if e := s.events[s.late]; e.after == nil {
		s.index.DeleteClaim(e.before)
	} else {
		s.index.SetClaim(e.after)
	}
	s.late++
}

// reserve allocates a device that is free in the index to a claim that is not allocated in the tracker.
func (s *scheduler) reserve(t *rapid.T) {
	c, err := s.tracker.Get("team", rapid.SampledFrom(claimNames).Draw(t, "name"))
	if err != nil || c.Status.Allocation != nil || s.held[c.UID] != nil {
		t.Skip("nothing to allocate")
	}
	device := rapid.SampledFrom([]string{"d0", "d1", "d2", "d3"}).Draw(t, "device")
	for _, h := range s.index.NonLocalHeld() {
		if h.Result.Device == device {
			t.Skip("in use")
		}
	}
	decided := c.DeepCopy()
	decided.Status.Allocation = claimOf("", 0, resourceapi.DeviceRequestAllocationResult{Driver: foreign, Pool: "fabric", Device: device}).Status.Allocation
	if err := s.tracker.SignalClaimPendingAllocation(c.UID, decided); err != nil {
		t.Skip(err)
	}
	if s.tracker.GetPendingAllocation(c.UID) != nil {
		s.held[c.UID] = decided
		s.index.AddPendingAllocation(decided)
	}
}

// pending draws a claim in flight.
func (s *scheduler) pending(t *rapid.T) *resourceapi.ResourceClaim {
	name := rapid.SampledFrom(claimNames).Draw(t, "name")
	for _, c := range s.held {
		if c.Name == name {
			return c
		}
	}
	t.Skip("not in flight")
	return nil
}

// bind writes an allocation and passes the answer to both, in the order of the in-tree plugin.
func (s *scheduler) bind(t *rapid.T) {
	c := s.pending(t)
	stored := s.api[c.Name]
	if stored == nil || stored.UID != c.UID || stored.Status.Allocation != nil {
		s.drop(c)
		return
	}
	written := stored.DeepCopy()
	written.Status = c.Status
	s.write(c.Name, written)
	s.written[c.UID] = written
	// The tracker rejects a claim of which it has a newer version.
	_ = s.tracker.AssumeClaimAfterAPICall(written)
	s.index.AssumeClaim(written)
	if rapid.IntRange(0, 3).Draw(t, "another claim fails") == 0 {
		s.drop(c)
		return
	}
	delete(s.held, c.UID)
	if s.tracker.MaybeRemoveClaimPendingAllocation(c.UID, true) {
		s.index.RemovePendingAllocation(c.UID)
	}
}

func (s *scheduler) unreserve(t *rapid.T) { s.drop(s.pending(t)) }

// drop removes a pending allocation that was not written.
func (s *scheduler) drop(c *resourceapi.ResourceClaim) {
	delete(s.held, c.UID)
	if s.tracker.MaybeRemoveClaimPendingAllocation(c.UID, false) {
		s.index.RemovePendingAllocation(c.UID)
		s.tracker.AssumedClaimRestore(c.Namespace, c.Name)
		s.index.RestoreClaim(nameOf(c))
	}
}

// known returns the devices that the index holds.
func (s *scheduler) known() map[string]bool {
	held := map[string]bool{}
	for _, h := range s.index.NonLocalHeld() {
		held[h.Result.Device] = true
	}
	return held
}

// check compares the index with the tracker's claims and pending allocations. The tracker's set of allocated devices is
// not compared: it loses a claim that is observed as allocated and next as allocated elsewhere.
func (s *scheduler) check(t *rapid.T) {
	all := slices.Collect(maps.Values(s.held))
	for _, name := range claimNames {
		c, err := s.tracker.Get("team", name)
		if err != nil {
			continue
		}
		// The tracker dropped the written version when the claim was restored.
		if written := s.written[c.UID]; written == nil || !isOlder(t, c, written) {
			all = append(all, c)
		}
	}
	known := s.known()
	for _, c := range all {
		for _, h := range holds(c) {
			if !known[h.Result.Device] {
				t.Fatalf("the tracker holds %s for %s, the index %v", h.Result.Device, c.UID, known)
			}
		}
	}
}

// isOlder reports whether a is of an older version than b.
func isOlder(t *rapid.T, a, b *resourceapi.ResourceClaim) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return order < 0
}

// checkTruth compares the index, after all events, with the API server.
func (s *scheduler) checkTruth(t *rapid.T) {
	want := map[string]bool{}
	for _, c := range s.api {
		for _, h := range holds(c) {
			want[h.Result.Device] = true
		}
	}
	for _, c := range s.held {
		want[c.Status.Allocation.Devices.Results[0].Device] = true
	}
	if got := s.known(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("the index holds %v, want %v", got, want)
	}
}
