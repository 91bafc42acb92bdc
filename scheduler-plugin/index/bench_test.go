package index_test

import (
	"fmt"
	"runtime"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// cluster returns an index with the given number of nodes, each with 8 H100 in all shapes. The devices of all nodes are
// the same objects, since only their names are read: what is measured is the memory and time of the index itself.
func cluster(tb testing.TB, nodes int) *index.Index {
	tb.Helper()
	x := newIndex()
	for _, list := range published(tb, nodes) {
		set(x, list)
	}
	return x
}

func published(tb testing.TB, nodes int) [][]*resourceapi.ResourceSlice {
	tb.Helper()
	list := publish(tb, machine(tb, "h100x8", "n"), 1, 1)
	var all [][]*resourceapi.ResourceSlice
	for i := range nodes {
		var own []*resourceapi.ResourceSlice
		for _, s := range list {
			own = append(own, placed(s, i))
		}
		all = append(all, own)
	}
	return all
}

// BenchmarkMemory prints the memory of the index per node of 8 H100: idle, and with 56 claims for one memory slice
// each.
func BenchmarkMemory(b *testing.B) {
	const nodes = 1000
	n := machine(b, "h100x8", "n")
	slices := published(b, nodes)
	var claims []*resourceapi.ResourceClaim
	for i := range nodes {
		for g := range n.GPUs {
			for start := range 7 {
				name := fmt.Sprintf("c-%d-%d-%d", i, g, start)
				claims = append(claims, claimOf(name, 1, result(fmt.Sprintf("n%d", i), mig(n, g, 19, start))))
			}
		}
	}
	for b.Loop() {
		before := heap()
		x := newIndex()
		for _, list := range slices {
			set(x, list)
		}
		idle := heap()
		for _, c := range claims {
			x.SetClaim(c)
		}
		full := heap()
		b.ReportMetric(float64(idle-before)/nodes, "B/node-idle")
		b.ReportMetric(float64(full-before)/nodes, "B/node-full")
		runtime.KeepAlive(x)
	}
	runtime.KeepAlive(slices)
	runtime.KeepAlive(claims)
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkClaim measures the events of one claim on a half full node of a cluster: pending, assumed, settled,
// observed, deleted, and the cost of a call of Changed.
func BenchmarkClaim(b *testing.B) {
	n := machine(b, "h100x8", "n")
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			x := cluster(b, nodes)
			for g := range 4 {
				x.SetClaim(claimOf(fmt.Sprint("held-", g), 1, result("n7", mig(n, g, 9, 0))))
			}
			decided := claimOf("a", 1, result("n7", mig(n, 5, 9, 4)))
			written := claimOf("a", 2, result("n7", mig(n, 5, 9, 4)))
			_, since := x.Changed(0)
			b.ReportAllocs()
			for b.Loop() {
				x.SetClaim(claimOf("a", 1))
				x.AddPendingAllocation(decided)
				x.AssumeClaim(written)
				x.RemovePendingAllocation(decided.UID)
				x.SetClaim(written)
				x.DeleteClaim(written)
				_, since = x.Changed(since)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/6, "ns/event")
		})
	}
}

// BenchmarkPublish measures reading a node of 8 H100 in all shapes from its ResourceSlices.
func BenchmarkPublish(b *testing.B) {
	x := newIndex()
	n := machine(b, "h100x8", "n")
	set(x, publish(b, n, 1, 1))
	var list []*resourceapi.ResourceSlice
	version := 1
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		version++
		list = publish(b, n, 1, version)
		b.StartTimer()
		x.SetSlice(list[1])
	}
}
