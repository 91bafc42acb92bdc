package requirements

import (
	"strconv"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// deviceGroups are the devices of a node, grouped so that the devices of a group are equal in everything that the evaluation
// of claims reads. Each alternative is evaluated once for each group: of the 200 MIG devices of a node, those of one profile
// on one GPU are equal for most claims.
type deviceGroups struct {
	// samples are the first devices of the groups, members the positions of their devices.
	samples []*resourceapi.Device
	members [][]int
}

// groupDevices returns the groups of the node's devices, and false if the budget is exceeded.
func (p *compiledClaims) groupDevices(n *index.Node, b *fit.Budget) (deviceGroups, bool) {
	fields := p.reads.keyFieldsOf(n.Driver)
	var groups deviceGroups
	if !b.Spend(len(n.Devices) * (lookupSteps + len(fields.attributes) + len(fields.capacities))) {
		return groups, false
	}
	known := map[string]int{}
	var key []byte
	for i, d := range n.Devices {
		key = fields.appendKey(appendFacts(key[:0], d), d)
		key = append(key, byte(n.Fit.Devices[i].Use.Shape))
		if p.policies {
			key = appendPolicies(key, d)
		}
		if p.uncacheable {
			key = strconv.AppendInt(key, int64(i), 10)
		}
		group, ok := known[string(key)]
		if !ok {
			group = len(groups.samples)
			known[string(key)] = group
			groups.samples, groups.members = append(groups.samples, d), append(groups.members, nil)
		}
		groups.members[group] = append(groups.members[group], i)
	}
	return groups, true
}
