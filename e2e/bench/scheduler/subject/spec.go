package subject

import (
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
)

// Variant says who schedules.
type Variant string

// The variants.
const (
	// InTree is kube-scheduler as it is delivered.
	InTree Variant = "in-tree"
	// Ours is kube-scheduler with our plugin in the place of DynamicResources.
	Ours Variant = "ours"
	// Null makes the writes of kube-scheduler and decides nothing.
	Null Variant = "null"
)

// Spec says what a subject is and what it schedules for.
type Spec struct {
	Variant Variant
	// Kubeconfig is how it finds the API server; empty to have the whole cluster in the memory of the
	// process, where the pods of a batch are created as soon as it is ordered.
	Kubeconfig string
	// Fleet is the cluster, Level what is allocated of it.
	Fleet fleet.Spec
	Level fleet.Level
	// Profile is where a profile of the processor is written for every batch, a path to which the name of
	// the batch is added; empty for none.
	Profile string
}

// order is a batch to be scheduled, within the limit.
type order struct {
	Batch fleet.Batch
	Limit time.Duration
}

// Outcome is what it took to schedule a batch.
type Outcome struct {
	// Pods is how many there were, Bound how many of them were bound in time.
	Pods, Bound int
	// Took is the time from the first scheduling cycle to the last binding that was observed.
	Took time.Duration
	// CPU is the processor time of the whole process, user and system.
	CPU time.Duration
	// Cycles are the scheduling cycles, Reserve included, binding not.
	Cycles []time.Duration
	// Allocated is what was allocated meanwhile, Live what the heap holds after it, in bytes.
	Allocated, Live uint64
	// Histograms are those of kube-scheduler that were observed meanwhile, by name; a name with labels has
	// their values behind it.
	Histograms map[string]Histogram
	// Failure is why nothing could be measured.
	Failure string
}

// Rate is how many pods were bound in a second.
func (o Outcome) Rate() float64 { return float64(o.Bound) / o.Took.Seconds() }

// PerPod is the processor time for one pod.
func (o Outcome) PerPod() time.Duration { return o.CPU / time.Duration(max(o.Bound, 1)) }
