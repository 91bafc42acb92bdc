package index

import (
	"container/list"
	"iter"
	"slices"
)

// maxRemovedNodes limits the number of removed nodes that are recorded.
const maxRemovedNodes = 1 << 14

// node is the mutable state of one node. Index.mu guards it.
type node struct {
	name string
	// pools are the pools whose devices are all on the node, sorted by driver and name.
	pools []*pool
	// nominations are sorted by pod.
	nominations []*nomination
	// content is what the pools publish, nil when it must be read again. contentChanged is the revision of the last
	// change.
	content        *publishedContent
	contentChanged uint64
	// snapshot is what readers see, nil without pools.
	snapshot *Node
	// changed is the revision of the last change. place is the node's element in changeLog.nodes.
	changed uint64
	place   *list.Element
}

// changeLog lists the nodes in the order of their last change.
type changeLog struct {
	revision uint64
	nodes    list.List
	// removed are the removed nodes, oldest first. An entry whose node has come back is skipped.
	removed []removedNode
}

// removedNode is a node that was removed at a revision.
type removedNode struct {
	node     *node
	revision uint64
}

// add records that the node changed at the current revision.
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

// dropOldestRemoved returns the node that was removed first and drops it from the log, if more than maxRemovedNodes are
// recorded. Otherwise it returns nil.
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

// after yields the nodes that changed after the revision, most recent first.
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

// change collects the nodes that one event changes.
type change struct {
	// nodes are the changed nodes. touched are the nodes of which only Held.InFlight changed.
	nodes, touched []*node
}

// add records a changed node.
func (c *change) add(n *node) {
	if !slices.Contains(c.nodes, n) {
		c.nodes = append(c.nodes, n)
	}
}

// touch records a node of which only Held.InFlight changed.
func (c *change) touch(n *node) {
	if !slices.Contains(c.touched, n) {
		c.touched = append(c.touched, n)
	}
}

// node returns the node with the name, and creates it if necessary.
func (x *Index) node(name string) *node {
	n, ok := x.nodes[name]
	if !ok {
		n = &node{name: name}
		x.nodes[name] = n
	}
	return n
}

// commit replaces the snapshots of the changed nodes. All changes of one event get the same new revision; touched nodes
// keep theirs.
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

// dropUnusedNode removes a node without pools and nominations that is not in the change log.
func (x *Index) dropUnusedNode(n *node) {
	if n.place == nil && len(n.nominations) == 0 && len(n.pools) == 0 {
		delete(x.nodes, n.name)
	}
}

// updateSnapshot replaces the snapshot of the node and updates the statistics and cliques. A node without pools has no
// snapshot.
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
