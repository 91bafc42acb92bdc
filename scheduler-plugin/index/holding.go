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

func idOf(r *resourceapi.DeviceRequestAllocationResult) deviceID {
	id := deviceID{pool: poolID{r.Driver, r.Pool}, device: r.Device}
	if r.ShareID != nil {
		id.share = string(*r.ShareID)
	}
	return id
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
