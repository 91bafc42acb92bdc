package index

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// holding is a device that a claim holds. result points into the claim's object.
type holding struct {
	result   *resourceapi.DeviceRequestAllocationResult
	inFlight bool
}

// deviceID identifies a device, or one share of a device that several claims share.
type deviceID struct {
	driver, pool, device, share string
}

func deviceIDOf(r *resourceapi.DeviceRequestAllocationResult) deviceID {
	id := deviceID{driver: r.Driver, pool: r.Pool, device: r.Device}
	if r.ShareID != nil {
		id.share = string(*r.ShareID)
	}
	return id
}

// deviceHoldings returns the devices that the claim holds: those of the latest written version, and those of the pending
// allocation in addition. A device in both counts once, as written. Devices with admin access are not held.
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

// updateHolders records the claim, which held other devices before, as a holder of the devices that it holds now.
//
// The usual life of an allocation is pending, assumed, observed. All three hold the same devices, so that after the first
// step only the flag inFlight changes: the node gets a new snapshot with the same revision, and nothing is ranked again.
func (x *Index) updateHolders(c *claim, before []holding, ch *change) {
	if !slices.EqualFunc(before, c.held, sameDevice) {
		x.replaceHolders(c, before, ch)
		return
	}
	for i := range c.held {
		if before[i].inFlight != c.held[i].inFlight {
			x.markInFlightChanged(c, &c.held[i], ch)
		}
	}
}

// sameDevice reports whether the two holdings differ at most in inFlight.
func sameDevice(a, b holding) bool {
	return a.result == b.result || equality.Semantic.DeepEqual(a.result, b.result)
}

// replaceHolders removes the claim from the holders of the pools of before, and adds it to those of the devices that it
// holds now. Pools that are neither published nor held afterwards are removed.
func (x *Index) replaceHolders(c *claim, before []holding, ch *change) {
	for i := range before {
		p := x.pool(x.poolOfResult(before[i].result))
		delete(p.holders, c.uid)
		x.markChanged(p, ch)
	}
	for i := range c.held {
		p := x.pool(x.poolOfResult(c.held[i].result))
		p.holders[c.uid] = c
		x.markChanged(p, ch)
	}
	for i := range before {
		if p := x.pools[x.poolOfResult(before[i].result)]; p != nil {
			x.dropUnusedPool(p)
		}
	}
}

// markChanged records that other devices of the pool are held.
func (x *Index) markChanged(p *pool, ch *change) {
	if p.node == "" {
		x.nonLocal.Store(nil)
		return
	}
	ch.add(x.node(p.node))
}

// markInFlightChanged records that the flag inFlight of a device of the claim changed. If another claim holds the same
// device, the flag decides which of the two is listed (dropWrittenTwice): then the list itself changed.
func (x *Index) markInFlightChanged(c *claim, h *holding, ch *change) {
	p := x.pools[x.poolOfResult(h.result)]
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

// heldDevices returns the devices of the pools that claims hold, in order of claim and result. The pools must be all
// pools of one node, or all pools without a node.
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
	// A claim that holds devices of several of the pools is listed in each of them.
	for _, c := range slices.Compact(holders) {
		for _, h := range c.held {
			if here(x.pools[x.poolOfResult(h.result)]) {
				all = append(all, Held{Claim: c.name, UID: c.uid, Result: *h.result, InFlight: h.inFlight})
			}
		}
	}
	return dropWrittenTwice(all)
}

// dropWrittenTwice removes devices in flight that another claim already holds in writing. The in-tree plugin creates the
// claim for a pod's extended resources during PreBind: the claim in flight and the created one are two claims with the
// same devices until the pending allocation is removed.
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
