package index_test

import (
	"fmt"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// TestConcurrent runs ResourceSlice events, claim events, a scheduler and readers concurrently: the race detector
// checks the shared state, and readers check that the occupancy of each GPU matches the held devices.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	x := newIndex()
	n := machine(t, "h100x2", "n1")
	list := publish(t, n, 1, 1)
	set(x, list)
	const rounds = 200
	var work sync.WaitGroup
	for g := range n.GPUs {
		for start := range 7 {
			work.Go(func() {
				name := fmt.Sprintf("c-%d-%d", g, start)
				device := result("n1", mig(n, g, 19, start))
				for v := 1; v <= 3*rounds; v += 3 {
					x.SetClaim(claimOf(name, v))
					x.AddPendingAllocation(claimOf(name, v, device))
					x.AssumeClaim(claimOf(name, v+1, device))
					x.RemovePendingAllocation(claimOf(name, v).UID)
					x.SetClaim(claimOf(name, v+1, device))
					x.SetClaim(claimOf(name, v+2))
				}
			})
		}
	}
	work.Go(func() {
		for v := range rounds {
			s := *list[1]
			s.ResourceVersion = fmt.Sprint(v + 2)
			x.SetSlice(&s)
			x.Nominate("p", "n1", []resourceapi.DeviceRequestAllocationResult{result("n1", whole(n, v%2))})
			x.EndNomination("p")
		}
	})
	for range 2 {
		work.Go(func() { watch(t, x, rounds) })
	}
	work.Wait()
	if got := x.Stats(); got.Devices != 0 || got.InFlight != 0 || got.Load.Free != 16 {
		t.Errorf("in the end %+v", got)
	}
}

// watch reads the index and checks every node.
func watch(t *testing.T, x *index.Index, rounds int) {
	var since uint64
	for range rounds {
		var changed map[string]*index.Node
		changed, since = x.Changed(since)
		for _, n := range changed {
			held := 0
			for _, h := range n.Held {
				if h.Pod == "" {
					held++
				}
			}
			holders := 0
			for _, g := range n.ForPod("p").Fit.GPUs {
				holders += g.Occupancy.Holders()
			}
			if held != holders {
				t.Errorf("revision %d: %d devices are held, GPUs have %d holders", n.Revision, held, holders)
			}
		}
		if len(x.NonLocalSlices()) > 0 {
			t.Error("devices roam")
		}
	}
}

// TestSize checks that an event reads and updates only its own node, independent of the number of nodes.
func TestSize(t *testing.T) {
	t.Parallel()
	n := machine(t, "t4x1", "n")
	list := publish(t, n, 1, 1)
	work := map[int]uint64{}
	for _, nodes := range []int{50, 5000} {
		x := newIndex()
		for i := range nodes {
			for _, s := range list {
				x.SetSlice(placed(s, i))
			}
		}
		_, since := x.Changed(0)
		before := x.Stats().Reads
		renewed := 0
		for i := range 20 {
			name := fmt.Sprintf("n%d", i)
			claim := claimOf("c", 2*i+1, result(name, whole(n, 0)))
			x.SetClaim(claim)
			tainted := placed(list[1], i)
			tainted.ResourceVersion = "2"
			x.SetSlice(tainted)
			changed, now := x.Changed(since)
			renewed, since = renewed+len(changed), now
			x.DeleteClaim(claim)
			_, since = x.Changed(since)
		}
		if renewed != 20 {
			t.Errorf("%d nodes: %d changed, want 20", nodes, renewed)
		}
		work[nodes] = x.Stats().Reads - before
	}
	if work[50] != 20 || work[5000] != 20 {
		t.Errorf("nodes read by 20 changes, by the size of the cluster: %v", work)
	}
}

// placed returns the ResourceSlice as node i publishes it.
func placed(s *resourceapi.ResourceSlice, i int) *resourceapi.ResourceSlice {
	c := *s
	c.Name = fmt.Sprintf("%s-%d", s.Name, i)
	c.Spec.NodeName = new(fmt.Sprintf("n%d", i))
	c.Spec.Pool.Name = fmt.Sprintf("n%d-%s", i, driver)
	return &c
}
