package rank

import (
	"fmt"
	"testing"
)

// BenchmarkPick measures what the best 64 nodes cost a pod, with one claim more or less since the last.
func BenchmarkPick(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			c := newCluster()
			p := pool(b, "h100x8", "node")
			for i := range nodes {
				c.join(fmt.Sprintf("node-%d", i), p)
			}
			d := c.demand(b, "mig", 1, `device.attributes["gpu.tessera.dev"].profile == "1g.10gb"`)
			r := New(c.index, 64)
			order := r.Order(d, nil)
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				name := fmt.Sprintf("node-%d", i%nodes)
				a := order.OnNode(name, "pod")
				claim := c.claim("claim", a.Node, a.Choice)
				if i%2 == 0 {
					c.index.SetClaim(claim)
				} else {
					c.index.DeleteClaim(claim)
				}
				b.StartTimer()
				r.Order(d, nil).Best(64, anywhere)
			}
		})
	}
}

// BenchmarkFirst measures what the first pod of a demand costs, on a cluster that others have looked at.
func BenchmarkFirst(b *testing.B) {
	const nodes = 5000
	c := newCluster()
	p := pool(b, "h100x8", "node")
	for i := range nodes {
		c.join(fmt.Sprintf("node-%d", i), p)
	}
	d := c.demand(b, "mig", 1, `device.attributes["gpu.tessera.dev"].profile == "1g.10gb"`)
	New(c.index, 1).Order(d, nil)
	for b.Loop() {
		New(c.index, 1).Order(d, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/nodes, "ns/node")
}
