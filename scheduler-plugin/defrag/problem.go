package defrag

import (
	"cmp"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption/victims"
)

// MaxMoves is the maximum number of moves for one pod.
const MaxMoves = 2

// Problem is a pod that was refused, and what can be moved for it. Nodes and holders are named by their positions.
type Problem struct {
	Nodes   []fit.Node
	Holders []Holder
	Refused Demand
}

// Demand is what pods demand of a node.
type Demand struct {
	// Requires returns the devices that they require; nil if none of the node can serve them.
	Requires func(node int) *fit.Requirements
	// Runs reports whether they can run on the node apart from its devices. It can be expensive and is called only for nodes with devices.
	Runs func(node int) bool
}

// Holder is an owner of devices that can be moved: pods that are evicted together, because they share claims.
type Holder struct {
	// Node is its node, Held the uses that it has there.
	Node int
	Held []victims.Held
	// Cost is that of one move.
	Cost Cost
	// Demand is that of the pods that replace it.
	Demand Demand
}

// Cost is the damage of moves. It grows with each move, and if one plan costs less than another, it does so with the same further move in both.
type Cost struct {
	// Priorities has the highest priority of the pods for each move, the highest first.
	Priorities []int32
	// Pods is the number of the pods, Work how long they have run, together.
	Pods int
	Work time.Duration
}

// compare orders costs: fewer moves first, then lower priorities, then fewer pods, then less work that is lost.
func (c Cost) compare(other Cost) int {
	return cmp.Or(cmp.Compare(len(c.Priorities), len(other.Priorities)), slices.Compare(c.Priorities, other.Priorities),
		cmp.Compare(c.Pods, other.Pods), cmp.Compare(c.Work, other.Work))
}

// plus returns the cost of both.
func (c Cost) plus(other Cost) Cost {
	priorities := slices.Concat(c.Priorities, other.Priorities)
	slices.SortFunc(priorities, func(a, b int32) int { return cmp.Compare(b, a) })
	return Cost{priorities, c.Pods + other.Pods, c.Work + other.Work}
}

// Plan is how the refused pod gets devices.
type Plan struct {
	// Node and Choice are what the refused pod gets, after the moves.
	Node   int
	Choice fit.Choice
	// Moves are in the order in which their destinations become free: each holder can be placed once those after it have left.
	Moves []Move
	Cost  Cost
}

// Move is a holder with its destination.
type Move struct {
	Holder, Node int
	Choice       fit.Choice
}
