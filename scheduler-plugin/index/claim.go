package index

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claim is the state of one ResourceClaim. Up to three versions of the object are known, and the devices that the claim
// holds follow from them (deviceHoldings):
//
//	decided by Reserve             pending, until the write is finished or given up
//	written by PreBind             assumed, until the informer has caught up
//	received from the informer     observed
//
// The invariant is that the index never holds fewer devices than kube-scheduler's own tracker of claims after the same
// events and calls, so that no device is given away twice. Whenever the order of two reports is unknown, the one that
// holds more devices wins.
type claim struct {
	name                       types.NamespacedName
	uid                        types.UID
	observed, assumed, pending *resourceapi.ResourceClaim
	// held is the result of deviceHoldings for the present versions.
	held []holding
}

// latest returns the newest written version, nil if there is none.
func (c *claim) latest() *resourceapi.ResourceClaim {
	if c.assumed != nil {
		return c.assumed
	}
	return c.observed
}

// SetClaim records a claim that the informer has received. A version that is older than the observed one is ignored.
func (x *Index) SetClaim(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// The informer is the authority on which claims exist.
	x.deleted.remove(object.UID)
	var ch change
	c := x.claimWithName(object, &ch)
	if c == nil {
		return
	}
	if c.observed == nil || !isOlder(object, c.observed) {
		c.observed = object
	}
	if c.assumed != nil && supersedes(c.observed, c.assumed) {
		c.assumed = nil
	}
	x.recomputeHoldings(c, &ch)
	x.commit(ch)
}

// supersedes reports whether the observed version replaces the assumed one: it is not older. Of equal versions, one
// without an allocation does not replace one with an allocation: for a claim for extended resources the in-tree plugin
// assumes, under the version that it has read, an allocation that a failed write may have stored.
func supersedes(observed, assumed *resourceapi.ResourceClaim) bool {
	if order, ok := compareVersions(observed, assumed); ok && order == 0 {
		return observed.Status.Allocation != nil || assumed.Status.Allocation == nil
	}
	return !isOlder(observed, assumed)
}

// DeleteClaim records that the claim is deleted. A pending allocation stays until RemovePendingAllocation. Another claim
// of the same name is not affected.
func (x *Index) DeleteClaim(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deleted.add(object.UID)
	var ch change
	if c := x.claims[object.UID]; c != nil {
		x.removeWritten(c, &ch)
	}
	x.commit(ch)
}

// AddPendingAllocation records an allocation that is decided and not yet written. It does not replace an earlier one.
//
// The scheduler's tracker ignores the pending allocation of an allocated claim, and keeps one that several pods share.
// Therefore the calls of AddPendingAllocation and RemovePendingAllocation for a claim must come in the order in which
// the tracker's GetPendingAllocation changed, not in the order in which the tracker was called.
func (x *Index) AddPendingAllocation(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var ch change
	c := x.claim(object)
	if c.pending == nil {
		c.pending = object
	}
	x.recomputeHoldings(c, &ch)
	x.commit(ch)
}

// RemovePendingAllocation records that no allocation of the claim is pending any more: it was written and passed to
// AssumeClaim, or given up.
func (x *Index) RemovePendingAllocation(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.claims[uid]
	if c == nil {
		return
	}
	var ch change
	c.pending = nil
	x.recomputeHoldings(c, &ch)
	x.commit(ch)
}

// AssumeClaim records the API server's answer to a write or read of the claim, which the informer has not received yet
// (AssumeClaimAfterAPICall). It is called whether or not the scheduler's tracker accepts the claim, since the two
// receive events at different times. A version that is older than the latest one is ignored, and so is a claim that was
// deleted: no further event would remove it.
func (x *Index) AssumeClaim(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.deleted.has(object.UID) {
		return
	}
	var ch change
	c := x.claimWithName(object, &ch)
	if c == nil {
		return
	}
	if known := c.latest(); known == nil || !isOlder(object, known) {
		c.assumed = object
	}
	x.recomputeHoldings(c, &ch)
	x.commit(ch)
}

// RestoreClaim drops the assumed version (AssumedClaimRestore), unless it has an allocation: that was an answer of the
// API server, so the devices are held until the informer reports their release.
func (x *Index) RestoreClaim(name types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.names[name]
	if c == nil || c.assumed == nil || c.assumed.Status.Allocation != nil {
		return
	}
	var ch change
	c.assumed = nil
	x.recomputeHoldings(c, &ch)
	x.commit(ch)
}

// claim returns the claim with the object's UID, and creates it if necessary.
func (x *Index) claim(object *resourceapi.ResourceClaim) *claim {
	c, ok := x.claims[object.UID]
	if !ok {
		c = &claim{name: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, uid: object.UID}
		x.claims[object.UID] = c
	}
	return c
}

// claimWithName returns the claim with the object's UID as the holder of the object's name. A name belongs to one claim
// at a time, so another claim that has it was deleted, or the object is. The resource version decides: it returns nil if
// the object is older. A claim of which no written version is known has no version to compare with: it loses its name,
// but is not recorded as deleted.
func (x *Index) claimWithName(object *resourceapi.ResourceClaim, ch *change) *claim {
	name := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	if other := x.names[name]; other != nil && other.uid != object.UID {
		if known := other.latest(); known != nil {
			if isOlder(object, known) {
				return nil
			}
			x.deleted.add(other.uid)
		}
		x.removeWritten(other, ch)
	}
	c := x.claim(object)
	x.names[name] = c
	return c
}

// removeWritten drops the written versions and the name of the claim.
func (x *Index) removeWritten(c *claim, ch *change) {
	c.observed, c.assumed = nil, nil
	if x.names[c.name] == c {
		delete(x.names, c.name)
	}
	x.recomputeHoldings(c, ch)
}

// recomputeHoldings updates the devices that the claim holds, the nodes of these devices and the statistics. It is called
// after every change of the claim's versions. A claim without any version is removed.
func (x *Index) recomputeHoldings(c *claim, ch *change) {
	before, after := c.held, c.deviceHoldings()
	c.held = after
	x.stats.count(before, -1)
	x.stats.count(after, 1)
	x.updateHolders(c, before, ch)
	if c.latest() == nil && c.pending == nil {
		delete(x.claims, c.uid)
		if x.names[c.name] == c {
			delete(x.names, c.name)
		}
	}
}
