package index

import (
	"container/list"
	"iter"
	"slices"
)

// maxRemovedNodes is how many of the nodes that are gone are remembered.
const maxRemovedNodes = 1 << 14

// node is a node as the index works on it.
type node struct {
	name string
	// pools are those whose devices are all on the node, in order of driver and name.
	pools []*pool
	// nominations are in order of pod.
	nominations []*nomination
	// content is what the pools publish, nil when it must be read again, and since when it is so.
	content        *publishedContent
	contentChanged uint64
	// snapshot is what readers see, nil without pools.
	snapshot *Node
	// changed is the revision of the last change, place the node's in the log.
	changed uint64
	place   *list.Element
}

// changeLog has the nodes in order of their last change.
type changeLog struct {
	revision uint64
	nodes    list.List
	// removed are the nodes that went, in that order; one that came back is passed over.
	removed []removedNode
}

// removedNode is a node that went at a revision.
type removedNode struct {
	node     *node
	revision uint64
}

// add notes that the node changed at the present revision.
func (l *changeLog) add(n *node) {
	n.changed = l.revision
	if n.place == nil {
		n.place = l.nodes.PushBack(n)
	} else {
		l.nodes.MoveToBack(n.place)
	}
	if n.snapshot == nil {
		l.removed = append(l.removed, removedNode{n, l.revision})
	}
}

// dropOldestRemoved returns a node that went longest ago, when too many are remembered, and nil otherwise.
func (l *changeLog) dropOldestRemoved() *node {
	for len(l.removed) > maxRemovedNodes {
		oldest := l.removed[0]
		l.removed = l.removed[1:]
		if oldest.node.snapshot == nil && oldest.node.changed == oldest.revision {
			l.nodes.Remove(oldest.node.place)
			oldest.node.place = nil
			return oldest.node
		}
	}
	return nil
}

// after yields the nodes that changed after the revision, the last one first.
func (l *changeLog) after(revision uint64) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		for e := l.nodes.Back(); e != nil; e = e.Prev() {
			n, ok := e.Value.(*node)
			if !ok || n.changed <= revision || !yield(n) {
				return
			}
		}
	}
}

// change collects what one event changes.
type change struct {
	// nodes are those that changed, touched those of which only Held.InFlight did.
	nodes, touched []*node
}

// add adds a node that changed.
func (c *change) add(n *node) {
	if !slices.Contains(c.nodes, n) {
		c.nodes = append(c.nodes, n)
	}
}

// touch adds a node of which only Held.InFlight changed.
func (c *change) touch(n *node) {
	if !slices.Contains(c.touched, n) {
		c.touched = append(c.touched, n)
	}
}

// node returns the node of the name, made if it is new.
func (x *Index) node(name string) *node {
	n, ok := x.nodes[name]
	if !ok {
		n = &node{name: name}
		x.nodes[name] = n
	}
	return n
}

// commit makes the snapshots of the nodes that changed, at a revision of their own.
func (x *Index) commit(c change) {
	next := x.log.revision + 1
	for _, n := range c.nodes {
		if len(n.pools) == 0 && n.snapshot == nil {
			continue
		}
		x.updateSnapshot(n, next)
		x.log.revision = next
		x.log.add(n)
	}
	for _, n := range c.touched {
		if n.snapshot != nil {
			x.updateSnapshot(n, n.snapshot.Revision)
		}
	}
	for _, n := range c.nodes {
		x.dropUnusedNode(n)
	}
	if old := x.log.dropOldestRemoved(); old != nil {
		x.dropUnusedNode(old)
	}
}

// dropUnusedNode drops the node when nobody can ask for it any more.
func (x *Index) dropUnusedNode(n *node) {
	if n.place == nil && len(n.nominations) == 0 && len(n.pools) == 0 {
		delete(x.nodes, n.name)
	}
}

// updateSnapshot replaces the snapshot of the node.
func (x *Index) updateSnapshot(n *node, revision uint64) {
	before := n.snapshot
	if len(n.pools) == 0 {
		n.snapshot, n.content = nil, nil
		x.snapshots.Delete(n.name)
	} else {
		if n.content == nil {
			n.content, n.contentChanged = x.readContent(n), revision
		}
		n.snapshot = n.content.newSnapshot(header{n.name, revision, n.contentChanged}, x.heldDevices(n.pools), n.nominations)
		x.snapshots.Store(n.name, n.snapshot)
	}
	x.stats.replace(before, n.snapshot)
	x.cliques.replace(before, n.snapshot)
}
