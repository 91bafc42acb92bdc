package index

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/wire"
)

// poolID identifies a pool. A pool of our driver is on one node, which is a part of its identity: what another node publishes
// under the name is another pool, so that a compromised node cannot replace the pool of another one by a newer generation. Pools of
// other drivers can have devices of several nodes; their node is empty.
type poolID struct{ driver, name, node string }

// poolOfSlice returns the pool of the ResourceSlice.
func (x *Index) poolOfSlice(s *resourceapi.ResourceSlice) poolID {
	id := poolID{driver: s.Spec.Driver, name: s.Spec.Pool.Name}
	if x.ours(id.driver) && s.Spec.NodeName != nil {
		id.node = *s.Spec.NodeName
	}
	return id
}

// poolOfResult returns the pool of the allocated device. Allocations name no node; that of our pools follows from the name.
func (x *Index) poolOfResult(r *resourceapi.DeviceRequestAllocationResult) poolID {
	id := poolID{driver: r.Driver, name: r.Pool}
	if x.ours(id.driver) {
		if node, ok := wire.PoolNode(r.Pool, r.Driver); ok {
			id.node = node
		}
	}
	return id
}

// pool has the ResourceSlices of one pool and the claims that hold its devices. It exists as long as it has either.
type pool struct {
	id poolID
	// slices are all ResourceSlices, newest are those of the newest generation. Both are sorted by name.
	slices, newest []*resourceapi.ResourceSlice
	// node is the node of all devices of the newest generation, empty if they are not all on one node.
	node string
	// holders are the claims that hold devices of the pool.
	holders map[types.UID]*claim
}

// complete reports whether all ResourceSlices of the newest generation have been received.
func (p *pool) complete() bool {
	return len(p.newest) > 0 && int64(len(p.newest)) == p.newest[0].Spec.Pool.ResourceSliceCount
}

// compare orders pools by driver, name and node.
func (p *pool) compare(other *pool) int {
	return cmp.Or(cmp.Compare(p.id.driver, other.id.driver), cmp.Compare(p.id.name, other.id.name), cmp.Compare(p.id.node, other.id.node))
}

// pool returns the pool with the ID, and creates it if necessary.
func (x *Index) pool(id poolID) *pool {
	p, ok := x.pools[id]
	if !ok {
		p = &pool{id: id, holders: map[types.UID]*claim{}}
		x.pools[id] = p
	}
	return p
}

// SetSlice records a published ResourceSlice with the taints of DeviceTaintRules. The same resourceVersion can arrive
// again with other taints. A ResourceSlice that is older than the recorded one is ignored.
func (x *Index) SetSlice(slice *resourceapi.ResourceSlice) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.slices[slice.Name]
	if before != nil && !isNewerSlice(slice, before) {
		return
	}
	x.slices[slice.Name] = slice
	x.countMapping(before, slice)
	var c change
	if before != nil && x.poolOfSlice(before) != x.poolOfSlice(slice) {
		x.removeFromPool(before, &c)
	}
	p := x.pool(x.poolOfSlice(slice))
	i, known := slices.BinarySearchFunc(p.slices, slice.Name, compareSliceName)
	if known {
		p.slices[i] = slice
	} else {
		p.slices = slices.Insert(p.slices, i, slice)
	}
	x.updatePool(p, &c)
	x.commit(c)
}

// DeleteSlice records that the ResourceSlice is deleted. It has no effect if a ResourceSlice with the same name and
// another UID is recorded.
func (x *Index) DeleteSlice(slice *resourceapi.ResourceSlice) {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.slices[slice.Name]
	if known == nil || known.UID != slice.UID {
		return
	}
	delete(x.slices, slice.Name)
	x.countMapping(known, nil)
	var c change
	x.removeFromPool(known, &c)
	x.commit(c)
}

// compareSliceName orders ResourceSlices by name.
func compareSliceName(s *resourceapi.ResourceSlice, name string) int {
	return cmp.Compare(s.Name, name)
}

// isNewerSlice reports whether the ResourceSlice replaces the recorded one: it is newer, or has the same
// resourceVersion and other content.
func isNewerSlice(slice, known *resourceapi.ResourceSlice) bool {
	if slice == known {
		return false
	}
	order, ok := compareVersions(slice, known)
	if !ok || order > 0 {
		return true
	}
	return order == 0 && !equality.Semantic.DeepEqual(slice, known)
}

// removeFromPool removes the ResourceSlice from its pool.
func (x *Index) removeFromPool(slice *resourceapi.ResourceSlice, c *change) {
	p := x.pool(x.poolOfSlice(slice))
	if i, known := slices.BinarySearchFunc(p.slices, slice.Name, compareSliceName); known {
		p.slices = slices.Delete(p.slices, i, i+1)
	}
	x.updatePool(p, c)
}

// updatePool recomputes what follows from the ResourceSlices of a pool: those of the newest generation, and the node of
// the pool.
func (x *Index) updatePool(p *pool, c *change) {
	var newest []*resourceapi.ResourceSlice
	for _, s := range p.slices {
		switch {
		case len(newest) == 0 || s.Spec.Pool.Generation == newest[0].Spec.Pool.Generation:
			newest = append(newest, s)
		case s.Spec.Pool.Generation > newest[0].Spec.Pool.Generation:
			newest = append(newest[:0:0], s)
		}
	}
	if slices.Equal(newest, p.newest) {
		x.dropUnusedPool(p)
		return
	}
	p.newest = newest
	x.movePool(p, commonNode(newest), c)
	x.updateNonLocal(p)
	x.dropUnusedPool(p)
}

// commonNode returns the node that all ResourceSlices name, empty if there is none.
func commonNode(list []*resourceapi.ResourceSlice) string {
	var name string
	for i, s := range list {
		if s.Spec.NodeName == nil || i > 0 && *s.Spec.NodeName != name {
			return ""
		}
		name = *s.Spec.NodeName
	}
	return name
}

// movePool moves the pool, whose ResourceSlices changed, to the node with the name. An empty name means no node.
func (x *Index) movePool(p *pool, name string, c *change) {
	if p.node != "" {
		n := x.node(p.node)
		n.content = nil
		c.add(n)
		if p.node != name {
			n.pools = slices.DeleteFunc(n.pools, func(other *pool) bool { return other == p })
		}
	}
	if name != "" {
		n := x.node(name)
		n.content = nil
		c.add(n)
		if p.node != name {
			i, _ := slices.BinarySearchFunc(n.pools, p, (*pool).compare)
			n.pools = slices.Insert(n.pools, i, p)
		}
	}
	p.node = name
}

// dropUnusedPool removes a pool without ResourceSlices and holders.
func (x *Index) dropUnusedPool(p *pool) {
	if len(p.slices) == 0 && len(p.holders) == 0 {
		delete(x.pools, p.id)
	}
}
