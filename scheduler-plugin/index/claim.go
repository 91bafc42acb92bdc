package index

import (
	resourceapi "k8s.io/api/resource/v1"
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

// latest returns the newest that was written, nil when nothing is known.
func (c *claim) latest() *resourceapi.ResourceClaim {
	if c.assumed != nil {
		return c.assumed
	}
	return c.observed
}

// SetClaim takes in a claim that the API server has. A version that is not newer than the one known
// changes nothing.
func (x *Index) SetClaim(object *resourceapi.ResourceClaim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// Whoever has seen the API server knows better than whoever remembers a deletion.
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

// supersedes reports whether what was observed takes the place of what is assumed. One that is not newer does not where it holds less:
// of a claim for extended resources the in-tree plugin assumes, at the version that it has, what a failed write may have allocated.
func supersedes(observed, assumed *resourceapi.ResourceClaim) bool {
	if order, ok := compareVersions(observed, assumed); ok && order == 0 {
		return observed.Status.Allocation != nil || assumed.Status.Allocation == nil
	}
	return !isOlder(observed, assumed)
}

// DeleteClaim takes in that the claim is gone. What is in flight for it stays until it is settled. It
// changes nothing when another claim of the same name is known.
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

// AddPendingAllocation takes in an allocation that is decided and not written. A claim that is pending already stays as it
// is. The calls of Pend and Settle about a claim must come in the order in which the scheduler's tracker
// changed (GetPendingAllocation), not merely was asked to: it does not take a claim that is allocated, and
// keeps one that several pods share.
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

// RemovePendingAllocation takes in that nothing is in flight for the claim any more: it was written and assumed, or
// dropped.
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

// AssumeClaim takes in what was written and is not yet observed (AssumeClaimAfterAPICall), whether or not the
// scheduler's tracker takes it: the two do not learn of the cluster at the same time. One that is older than
// what is known changes nothing, nor does a claim that was deleted.
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

// RestoreClaim goes back to what was observed (AssumedClaimRestore), but for an allocation: what is assumed was
// an answer of the API server, which will tell when it is released. Until then nobody else may have it.
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

// claim returns the claim of the object, made if it is new.
func (x *Index) claim(object *resourceapi.ResourceClaim) *claim {
	c, ok := x.claims[object.UID]
	if !ok {
		c = &claim{name: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, uid: object.UID}
		x.claims[object.UID] = c
	}
	return c
}

// claimWithName returns the claim of the object as the one that has its name, and nil when another one has it that
// is newer. An older one that had it is gone; one of which nothing that was written is known may be either.
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

// removeWritten drops what was written of the claim.
func (x *Index) removeWritten(c *claim, ch *change) {
	c.observed, c.assumed = nil, nil
	if x.names[c.name] == c {
		delete(x.names, c.name)
	}
	x.recomputeHoldings(c, ch)
}
