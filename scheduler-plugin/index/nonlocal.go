package index

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// nonLocal is what is known of the pools that are not on one node.
type nonLocal struct {
	slices []*resourceapi.ResourceSlice
	held   []Held
}

// NonLocalSlices returns the slices of the pools whose devices are not all bound to one node, of every driver, in
// order of driver, pool and name. It is cheap but after a change of such a pool. Nobody may change what it
// returns.
func (x *Index) NonLocalSlices() []*resourceapi.ResourceSlice { return x.gatherNonLocal().slices }

// NonLocalHeld returns what claims hold of these pools, in order of claim and result.
func (x *Index) NonLocalHeld() []Held { return x.gatherNonLocal().held }

// gatherNonLocal returns what is known of the roaming pools, gathered again after a change.
func (x *Index) gatherNonLocal() *nonLocal {
	if known := x.nonLocal.Load(); known != nil {
		return known
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var pools []*pool
	for _, p := range x.nonLocalPools {
		pools = append(pools, p)
	}
	slices.SortFunc(pools, (*pool).compare)
	r := &nonLocal{held: x.heldDevices(pools)}
	for _, p := range pools {
		r.slices = append(r.slices, p.newest...)
	}
	x.nonLocal.Store(r)
	return r
}

// updateNonLocal notes whether the pool, whose slices changed, is on no node.
func (x *Index) updateNonLocal(p *pool) {
	_, before := x.nonLocalPools[p.id]
	now := p.node == "" && len(p.newest) > 0
	if now {
		x.nonLocalPools[p.id] = p
	} else {
		delete(x.nonLocalPools, p.id)
	}
	if before || now {
		x.nonLocal.Store(nil)
	}
}
