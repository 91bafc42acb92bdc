package index

import "k8s.io/apimachinery/pkg/types"

// maxDeletedClaims is how many of the claims that are gone are remembered.
const maxDeletedClaims = 1 << 12

// deletedClaims remembers the claims that were deleted last: a call of the scheduler that comes after the
// deletion must not bring one back, since nobody would delete it again.
type deletedClaims struct {
	uids  map[types.UID]bool
	order []types.UID
}

// add buries the claim.
func (g *deletedClaims) add(uid types.UID) {
	if g.uids == nil {
		g.uids = map[types.UID]bool{}
	}
	if g.uids[uid] {
		return
	}
	g.uids[uid] = true
	g.order = append(g.order, uid)
	if len(g.order) > maxDeletedClaims {
		delete(g.uids, g.order[0])
		g.order = g.order[1:]
	}
}

// has reports whether the claim is buried.
func (g *deletedClaims) has(uid types.UID) bool { return g.uids[uid] }

// remove unearths the claim.
func (g *deletedClaims) remove(uid types.UID) { delete(g.uids, uid) }
