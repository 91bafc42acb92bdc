package index

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// roaming is what is known of the pools that are not on one node.
type roaming struct {
	slices []*resourceapi.ResourceSlice
	held   []Held
}

// Roaming returns the slices of the pools whose devices are not all bound to one node, of every driver, in
// order of driver, pool and name. It is cheap but after a change of such a pool. Nobody may change what it
// returns.
func (x *Index) Roaming() []*resourceapi.ResourceSlice { return x.roam().slices }

// RoamingHeld returns what claims hold of these pools, in order of claim and result.
func (x *Index) RoamingHeld() []Held { return x.roam().held }

// roam returns what is known of the roaming pools, gathered again after a change.
func (x *Index) roam() *roaming {
	if known := x.roaming.Load(); known != nil {
		return known
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var pools []*pool
	for _, p := range x.roamers {
		pools = append(pools, p)
	}
	slices.SortFunc(pools, (*pool).compare)
	r := &roaming{held: x.held(pools)}
	for _, p := range pools {
		r.slices = append(r.slices, p.newest...)
	}
	x.roaming.Store(r)
	return r
}

// unbind notes whether the pool, whose slices changed, is on no node.
func (x *Index) unbind(p *pool) {
	_, before := x.roamers[p.id]
	now := p.node == "" && len(p.newest) > 0
	if now {
		x.roamers[p.id] = p
	} else {
		delete(x.roamers, p.id)
	}
	if before || now {
		x.roaming.Store(nil)
	}
}
