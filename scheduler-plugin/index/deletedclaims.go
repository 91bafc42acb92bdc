package index

import "k8s.io/apimachinery/pkg/types"

// maxDeletedClaims limits the number of deleted claims that are recorded.
const maxDeletedClaims = 1 << 12

// deletedClaims records the most recently deleted claims, the oldest first. A call of the scheduler that comes after the
// deletion must not add the claim again, since no further event would remove it.
type deletedClaims struct {
	uids  map[types.UID]bool
	order []types.UID
}

func (d *deletedClaims) add(uid types.UID) {
	if d.uids == nil {
		d.uids = map[types.UID]bool{}
	}
	if d.uids[uid] {
		return
	}
	d.uids[uid] = true
	d.order = append(d.order, uid)
	if len(d.order) > maxDeletedClaims {
		delete(d.uids, d.order[0])
		d.order = d.order[1:]
	}
}

func (d *deletedClaims) has(uid types.UID) bool { return d.uids[uid] }

func (d *deletedClaims) remove(uid types.UID) { delete(d.uids, uid) }
