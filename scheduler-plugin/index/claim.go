package index

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// claim is what is known of one claim.
type claim struct {
	name types.NamespacedName
	uid  types.UID
	// observed is what the API server has, assumed what was written and is not yet observed, pending what
	// is decided and not yet written.
	observed, assumed, pending *resourceapi.ResourceClaim
	// held are the devices that follow.
	held []holding
}

// holding is a device that a claim holds, as its object has it.
type holding struct {
	result   *resourceapi.DeviceRequestAllocationResult
	inFlight bool
}

// pool returns the pool of the device.
func (h *holding) pool() poolID { return poolID{h.result.Driver, h.result.Pool} }

// deviceID says which device, or which share of one, a result means.
type deviceID struct {
	pool          poolID
	device, share string
}

func idOf(r *resourceapi.DeviceRequestAllocationResult) deviceID {
	id := deviceID{pool: poolID{r.Driver, r.Pool}, device: r.Device}
	if r.ShareID != nil {
		id.share = string(*r.ShareID)
	}
	return id
}

// latest returns the newest that was written, nil when nothing is known.
func (c *claim) latest() *resourceapi.ResourceClaim {
	if c.assumed != nil {
		return c.assumed
	}
	return c.observed
}

// holds returns the devices that the claim holds: those in flight, and beside them what was written.
// Devices with admin access are not held.
func (c *claim) holds() []holding {
	var all []holding
	add := func(object *resourceapi.ResourceClaim, inFlight bool) {
		if object == nil || object.Status.Allocation == nil {
			return
		}
		for i := range object.Status.Allocation.Devices.Results {
			r := &object.Status.Allocation.Devices.Results[i]
			if r.AdminAccess != nil && *r.AdminAccess {
				continue
			}
			same := func(h holding) bool { return idOf(h.result) == idOf(r) }
			if !slices.ContainsFunc(all, same) {
				all = append(all, holding{r, inFlight})
			}
		}
	}
	add(c.latest(), false)
	add(c.pending, true)
	return all
}

// SetClaim takes in a claim that the API server has. A version that is not newer than the one known
// changes nothing.
func (x *Index) SetClaim(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// Whoever has seen the API server knows better than whoever remembers a deletion.
	x.buried.remove(object.UID)
	var ch change
	c := x.admit(object, &ch)
	if c == nil {
		return
	}
	if c.observed == nil || !older(object, c.observed) {
		c.observed = object
	}
	if c.assumed != nil && overtakes(c.observed, c.assumed) {
		c.assumed = nil
	}
	x.reckon(c, &ch)
	x.commit(ch)
}

// overtakes reports whether what was observed takes the place of what is assumed. One that is not newer does not where it holds less:
// of a claim for extended resources the in-tree plugin assumes, at the version that it has, what a failed write may have allocated.
func overtakes(observed, assumed *resourceapi.ResourceClaim) bool {
	if order, ok := compareVersions(observed, assumed); ok && order == 0 {
		return observed.Status.Allocation != nil || assumed.Status.Allocation == nil
	}
	return !older(observed, assumed)
}

// DeleteClaim takes in that the claim is gone. What is in flight for it stays until it is settled. It
// changes nothing when another claim of the same name is known.
func (x *Index) DeleteClaim(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.buried.add(object.UID)
	var ch change
	if c := x.claims[object.UID]; c != nil {
		x.withdraw(c, &ch)
	}
	x.commit(ch)
}

// Pend takes in an allocation that is decided and not written. A claim that is pending already stays as it
// is. The calls of Pend and Settle about a claim must come in the order in which the scheduler's tracker
// changed (GetPendingAllocation), not merely was asked to: it does not take a claim that is allocated, and
// keeps one that several pods share.
func (x *Index) Pend(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var ch change
	c := x.claim(object)
	if c.pending == nil {
		c.pending = object
	}
	x.reckon(c, &ch)
	x.commit(ch)
}

// Settle takes in that nothing is in flight for the claim any more: it was written and assumed, or
// dropped.
func (x *Index) Settle(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.claims[uid]
	if c == nil {
		return
	}
	var ch change
	c.pending = nil
	x.reckon(c, &ch)
	x.commit(ch)
}

// Assume takes in what was written and is not yet observed (AssumeClaimAfterAPICall), whether or not the
// scheduler's tracker takes it: the two do not learn of the cluster at the same time. One that is older than
// what is known changes nothing, nor does a claim that was deleted.
func (x *Index) Assume(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.buried.has(object.UID) {
		return
	}
	var ch change
	c := x.admit(object, &ch)
	if c == nil {
		return
	}
	if known := c.latest(); known == nil || !older(object, known) {
		c.assumed = object
	}
	x.reckon(c, &ch)
	x.commit(ch)
}

// Restore goes back to what was observed (AssumedClaimRestore), but for an allocation: what is assumed was
// an answer of the API server, which will tell when it is released. Until then nobody else may have it.
func (x *Index) Restore(name types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.names[name]
	if c == nil || c.assumed == nil || c.assumed.Status.Allocation != nil {
		return
	}
	var ch change
	c.assumed = nil
	x.reckon(c, &ch)
	x.commit(ch)
}

// claim returns the claim of the object, made if it is new.
func (x *Index) claim(object *resourceapi.ResourceClaim) *claim {
	c, ok := x.claims[object.UID]
	if !ok {
		c = &claim{name: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, uid: object.UID}
		x.claims[object.UID] = c
	}
	return c
}

// admit returns the claim of the object as the one that has its name, and nil when another one has it that
// is newer. An older one that had it is gone; one of which nothing that was written is known may be either.
func (x *Index) admit(object *resourceapi.ResourceClaim, ch *change) *claim {
	name := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	if other := x.names[name]; other != nil && other.uid != object.UID {
		if known := other.latest(); known != nil {
			if older(object, known) {
				return nil
			}
			x.buried.add(other.uid)
		}
		x.withdraw(other, ch)
	}
	c := x.claim(object)
	x.names[name] = c
	return c
}

// withdraw drops what was written of the claim.
func (x *Index) withdraw(c *claim, ch *change) {
	c.observed, c.assumed = nil, nil
	if x.names[c.name] == c {
		delete(x.names, c.name)
	}
	x.reckon(c, ch)
}

// reckon brings up to date what the claim holds, and forgets a claim of which nothing is known.
func (x *Index) reckon(c *claim, ch *change) {
	before, after := c.held, c.holds()
	c.held = after
	x.stats.count(before, -1)
	x.stats.count(after, 1)
	if slices.EqualFunc(before, after, sameDevice) {
		for i := range after {
			if before[i].inFlight != after[i].inFlight {
				x.touch(c, &after[i], ch)
			}
		}
	} else {
		x.hold(c, before, ch)
	}
	if c.latest() == nil && c.pending == nil {
		delete(x.claims, c.uid)
		if x.names[c.name] == c {
			delete(x.names, c.name)
		}
	}
}

// sameDevice reports whether the holdings differ in nothing but being in flight.
func sameDevice(a, b holding) bool {
	return a.result == b.result || equality.Semantic.DeepEqual(a.result, b.result)
}

// hold makes the claim, which held other devices before, a holder of the pools of those it holds now.
func (x *Index) hold(c *claim, before []holding, ch *change) {
	for i := range before {
		p := x.pool(before[i].pool())
		delete(p.holders, c.uid)
		x.disturb(p, ch)
	}
	for i := range c.held {
		p := x.pool(c.held[i].pool())
		p.holders[c.uid] = c
		x.disturb(p, ch)
	}
	for i := range before {
		if p := x.pools[before[i].pool()]; p != nil {
			x.tidy(p)
		}
	}
}

// disturb notes that other devices of the pool are held.
func (x *Index) disturb(p *pool, ch *change) {
	if p.node == "" {
		x.roaming.Store(nil)
		return
	}
	ch.add(x.node(p.node))
}

// touch notes that a device of the claim is in flight, or not any more. Where another claim holds it too,
// that decides which of the two is shown (once): then the node changed.
func (x *Index) touch(c *claim, h *holding, ch *change) {
	p := x.pools[h.pool()]
	same := func(other holding) bool { return idOf(other.result) == idOf(h.result) }
	for _, other := range p.holders {
		if other != c && slices.ContainsFunc(other.held, same) {
			x.disturb(p, ch)
			return
		}
	}
	if p.node == "" {
		x.roaming.Store(nil)
		return
	}
	ch.touch(x.node(p.node))
}

// held returns the devices that claims hold of the pools, in order of claim and result.
func (x *Index) held(pools []*pool) []Held {
	var holders []*claim
	here := func(p *pool) bool { return p != nil && len(p.newest) > 0 && p.node == pools[0].node }
	for _, p := range pools {
		holders = slices.AppendSeq(holders, maps.Values(p.holders))
	}
	slices.SortFunc(holders, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.name.Namespace, b.name.Namespace), cmp.Compare(a.name.Name, b.name.Name), cmp.Compare(a.uid, b.uid))
	})
	var all []Held
	for _, c := range slices.Compact(holders) {
		for _, h := range c.held {
			if here(x.pools[h.pool()]) {
				all = append(all, Held{Claim: c.name, UID: c.uid, Result: *h.result, InFlight: h.inFlight})
			}
		}
	}
	return once(all)
}

// once drops the devices in flight that another claim is known to have been given: of a claim that is made
// for a pod's extended resources the one in flight and the one that is written are two.
func once(list []Held) []Held {
	if !slices.ContainsFunc(list, func(h Held) bool { return h.InFlight }) {
		return list
	}
	written := map[deviceID]bool{}
	for i := range list {
		if !list[i].InFlight {
			written[idOf(&list[i].Result)] = true
		}
	}
	return slices.DeleteFunc(list, func(h Held) bool { return h.InFlight && written[idOf(&h.Result)] })
}
