package defrag

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The type of the plan in JSON.
const (
	Kind       = "DefragmentationPlan"
	APIVersion = "tessera.dev/v1alpha1"
)

// Outcome is what is possible for the pod.
type Outcome string

// The outcomes.
const (
	// Fits: the pod fits without a move.
	Fits Outcome = "Fits"
	// Movable: the pod fits after the moves of the plan.
	Movable Outcome = "Movable"
	// Impossible: neither one move nor two make room.
	Impossible Outcome = "Impossible"
	// Unknown: the search was ended at its limit.
	Unknown Outcome = "Unknown"
)

// Plan is how a pod gets its devices.
type Plan struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string  `json:"namespace"`
	Pod       string  `json:"pod"`
	Outcome   Outcome `json:"outcome"`
	// Node and Devices are what the pod gets, after the moves.
	Node    string   `json:"node,omitempty"`
	Devices []string `json:"devices,omitempty"`
	// Moves are in the order of their execution: a destination is free after the moves that follow it in the list have left their devices.
	Moves []Move `json:"moves,omitempty"`
	// Considered is the number of groups of pods that could be moved, Excluded are those that could not, by reason.
	Considered int         `json:"considered"`
	Excluded   []Exclusion `json:"excluded,omitempty"`
	// Delegated are nodes that the search leaves out, because Tessera's plugin does not decide on them.
	Delegated []string `json:"delegated,omitempty"`
}

// Move is pods that are evicted together, because they share claims, and the destination of those that replace them.
type Move struct {
	// Pods and Claims are NAMESPACE/NAME.
	Pods   []string `json:"pods"`
	Claims []string `json:"claims"`
	// Priority is the highest priority of the pods, RunningSeconds how long they have run, together.
	Priority       int32 `json:"priority"`
	RunningSeconds int64 `json:"runningSeconds"`
	From           Place `json:"from"`
	To             Place `json:"to"`
}

// Place is devices of a node.
type Place struct {
	Node    string   `json:"node"`
	Devices []string `json:"devices"`
}

// Exclusion is why pods with devices cannot be moved.
type Exclusion struct {
	Reason string   `json:"reason"`
	Pods   []string `json:"pods"`
}

// exclude adds pods that cannot be moved.
func (p *Plan) exclude(reason string, pods []string) {
	i := slices.IndexFunc(p.Excluded, func(e Exclusion) bool { return e.Reason == reason })
	if i < 0 {
		i = len(p.Excluded)
		p.Excluded = append(p.Excluded, Exclusion{Reason: reason, Pods: []string{}})
	}
	p.Excluded[i].Pods = append(p.Excluded[i].Pods, pods...)
}
