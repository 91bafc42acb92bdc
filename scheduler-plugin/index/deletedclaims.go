package index

import "k8s.io/apimachinery/pkg/types"

// mostBuried is how many of the claims that are gone are remembered.
const mostBuried = 1 << 12

// graveyard remembers the claims that were deleted last: a call of the scheduler that comes after the
// deletion must not bring one back, since nobody would delete it again.
type graveyard struct {
	uids  map[types.UID]bool
	order []types.UID
}

// add buries the claim.
func (g *graveyard) add(uid types.UID) {
	if g.uids == nil {
		g.uids = map[types.UID]bool{}
	}
	if g.uids[uid] {
		return
	}
	g.uids[uid] = true
	g.order = append(g.order, uid)
	if len(g.order) > mostBuried {
		delete(g.uids, g.order[0])
		g.order = g.order[1:]
	}
}

// has reports whether the claim is buried.
func (g *graveyard) has(uid types.UID) bool { return g.uids[uid] }

// remove unearths the claim.
func (g *graveyard) remove(uid types.UID) { delete(g.uids, uid) }
