package subject

import (
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
)

// Variant is the kind of a scheduler.
type Variant string

// The variants.
const (
	// InTree is the released kube-scheduler.
	InTree Variant = "in-tree"
	// Ours is kube-scheduler with our plugin in the place of DynamicResources.
	Ours Variant = "ours"
	// Null makes the writes of kube-scheduler without decisions.
	Null Variant = "null"
)

// Spec describes a subject and its cluster.
type Spec struct {
	Variant Variant
	// Kubeconfig is the path of the configuration for the API server; empty to have the whole cluster in
	// the memory of the process, which then creates the pods of a batch when it is ordered.
	Kubeconfig string
	// Fleet is the cluster, Level the allocated part of it.
	Fleet fleet.Spec
	Level fleet.Level
	// Additional makes Ours a scheduler in addition to the stock one, which ignores the taint that keeps the latter off
	// the devices.
	Additional bool
	// HeapProfile is where a profile of the heap is written for every batch, like Profile.
	HeapProfile string
	// Profile is where a profile of the processor is written for the first read of the cluster and for every batch, a path
	// to which "read" or the name of the batch is added; empty for none.
	Profile string
}

// order is a batch to be scheduled, within the limit.
type order struct {
	Batch fleet.Batch
	Limit time.Duration
}

// Outcome is the result and the cost of scheduling a batch.
type Outcome struct {
	// Pods is the number of pods, Bound the number of those bound in time.
	Pods, Bound int
	// Took is the time from the first scheduling cycle to the last binding that was observed.
	Took time.Duration
	// CPU is the processor time of the whole process, user and system.
	CPU time.Duration
	// Dialed is the number of connections that were opened to the API server.
	Dialed int
	// Cycles are the scheduling cycles, Reserve included, binding not.
	Cycles []time.Duration
	// Read is the time from the start of the informers until the process had read the whole cluster.
	Read time.Duration
	// Scores are the times of our plugin's Score for all nodes of a pod, its normalization included.
	Scores []time.Duration
	// Allocated are the bytes allocated meanwhile, Live the size of the heap after it.
	Allocated, Live uint64
	// Histograms are those of kube-scheduler that were observed meanwhile, by name; a name with labels has
	// their values behind it.
	Histograms map[string]Histogram
	// Failure is the error when nothing could be measured.
	Failure string
}

// Rate is the number of pods bound per second.
func (o Outcome) Rate() float64 { return float64(o.Bound) / o.Took.Seconds() }

// PerPod is the processor time for one pod.
func (o Outcome) PerPod() time.Duration { return o.CPU / time.Duration(max(o.Bound, 1)) }
