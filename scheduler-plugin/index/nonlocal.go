package index

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// nonLocal has the ResourceSlices and held devices of the pools that are not on one node.
type nonLocal struct {
	slices []*resourceapi.ResourceSlice
	held   []Held
}

// NonLocalSlices returns the ResourceSlices of the pools whose devices are not all on one node, of every driver, sorted
// by driver, pool and name. The result is cached until such a pool changes. Callers must not modify it.
func (x *Index) NonLocalSlices() []*resourceapi.ResourceSlice { return x.gatherNonLocal().slices }

// NonLocalHeld returns the devices of these pools that claims hold, in order of claim and result. Callers must not
// modify the result.
func (x *Index) NonLocalHeld() []Held { return x.gatherNonLocal().held }

// gatherNonLocal returns the state of the non-local pools. It is computed again after a change.
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

// updateNonLocal updates the set of non-local pools after the ResourceSlices of the pool changed. A pool of our driver is always on
// one node (wire.Read refuses any other).
func (x *Index) updateNonLocal(p *pool) {
	_, before := x.nonLocalPools[p.id]
	now := p.node == "" && len(p.newest) > 0 && !x.ours(p.id.driver)
	if now {
		x.nonLocalPools[p.id] = p
	} else {
		delete(x.nonLocalPools, p.id)
	}
	if before || now {
		x.nonLocal.Store(nil)
	}
}
