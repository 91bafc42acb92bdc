package intree

import (
	"math"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// Capture holds the claims that a simulated Reserve would have allocated, in order.
type Capture struct {
	Claims []*resourceapi.ResourceClaim
}

// Score returns the score of the captured allocation on the node, on the scale of fit.Choice.Score: that of the best
// choice among exactly the devices that the in-tree allocator took. It is 0 if the allocation has no device of the
// node's pool, and the minimum if fit cannot use the devices.
func (c *Capture) Score(n *index.Node) int64 {
	taken := map[string]bool{}
	for _, claim := range c.Claims {
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == n.Driver && r.Pool == n.Pool && (r.AdminAccess == nil || !*r.AdminAccess) {
				taken[r.Device] = true
			}
		}
	}
	if len(taken) == 0 {
		return 0
	}
	only := fit.Alternative{Candidates: fit.NewSet(len(n.Devices)), Count: len(taken)}
	for i, d := range n.Devices {
		if taken[d.Name] {
			only.Candidates.Add(i)
		}
	}
	choice, ok := fit.Choose(&n.Fit, &fit.Requirements{Requests: []fit.Request{{Alternatives: []fit.Alternative{only}}}}, fit.NewBudget(fit.NodeSteps))
	if !ok {
		return math.MinInt64
	}
	return choice.Score
}
