package index

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

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

func deviceIDOf(r *resourceapi.DeviceRequestAllocationResult) deviceID {
	id := deviceID{pool: poolID{r.Driver, r.Pool}, device: r.Device}
	if r.ShareID != nil {
		id.share = string(*r.ShareID)
	}
	return id
}

// deviceHoldings returns the devices that the claim holds: those in flight, and beside them what was written.
// Devices with admin access are not held.
func (c *claim) deviceHoldings() []holding {
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
			same := func(h holding) bool { return deviceIDOf(h.result) == deviceIDOf(r) }
			if !slices.ContainsFunc(all, same) {
				all = append(all, holding{r, inFlight})
			}
		}
	}
	add(c.latest(), false)
	add(c.pending, true)
	return all
}

// recomputeHoldings brings up to date what the claim holds, and forgets a claim of which nothing is known.
func (x *Index) recomputeHoldings(c *claim, ch *change) {
	before, after := c.held, c.deviceHoldings()
	c.held = after
	x.stats.count(before, -1)
	x.stats.count(after, 1)
	if slices.EqualFunc(before, after, sameDevice) {
		for i := range after {
			if before[i].inFlight != after[i].inFlight {
				x.markInFlightChanged(c, &after[i], ch)
			}
		}
	} else {
		x.replaceHolders(c, before, ch)
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

// replaceHolders makes the claim, which held other devices before, a holder of the pools of those it holds now.
func (x *Index) replaceHolders(c *claim, before []holding, ch *change) {
	for i := range before {
		p := x.pool(before[i].pool())
		delete(p.holders, c.uid)
		x.markChanged(p, ch)
	}
	for i := range c.held {
		p := x.pool(c.held[i].pool())
		p.holders[c.uid] = c
		x.markChanged(p, ch)
	}
	for i := range before {
		if p := x.pools[before[i].pool()]; p != nil {
			x.dropUnusedPool(p)
		}
	}
}

// markChanged notes that other devices of the pool are held.
func (x *Index) markChanged(p *pool, ch *change) {
	if p.node == "" {
		x.nonLocal.Store(nil)
		return
	}
	ch.add(x.node(p.node))
}

// markInFlightChanged notes that a device of the claim is in flight, or not any more. Where another claim holds it too,
// that decides which of the two is shown (once): then the node changed.
func (x *Index) markInFlightChanged(c *claim, h *holding, ch *change) {
	p := x.pools[h.pool()]
	same := func(other holding) bool { return deviceIDOf(other.result) == deviceIDOf(h.result) }
	for _, other := range p.holders {
		if other != c && slices.ContainsFunc(other.held, same) {
			x.markChanged(p, ch)
			return
		}
	}
	if p.node == "" {
		x.nonLocal.Store(nil)
		return
	}
	ch.touch(x.node(p.node))
}

// heldDevices returns the devices that claims hold of the pools, in order of claim and result.
func (x *Index) heldDevices(pools []*pool) []Held {
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
	return dropWrittenTwice(all)
}

// dropWrittenTwice drops the devices in flight that another claim is known to have been given: of a claim that is made
// for a pod's extended resources the one in flight and the one that is written are two.
func dropWrittenTwice(list []Held) []Held {
	if !slices.ContainsFunc(list, func(h Held) bool { return h.InFlight }) {
		return list
	}
	written := map[deviceID]bool{}
	for i := range list {
		if !list[i].InFlight {
			written[deviceIDOf(&list[i].Result)] = true
		}
	}
	return slices.DeleteFunc(list, func(h Held) bool { return h.InFlight && written[deviceIDOf(&h.Result)] })
}
