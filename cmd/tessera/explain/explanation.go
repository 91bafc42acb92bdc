package explain

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind and APIVersion of the JSON form.
const (
	Kind       = "PodExplanation"
	APIVersion = "tessera.dev/v1alpha1"
)

// Explanation is what the scheduler would do with a pod now, or where it is.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Scheduler string `json:"scheduler"`
	// Bound is the node that the pod is on; nothing else is known then but what it holds.
	Bound string `json:"bound,omitempty"`
	// Chosen are the nodes of the highest score; of several kube-scheduler takes any.
	Chosen []string `json:"chosen"`
	// Refusal is why no node was looked at.
	Refusal string `json:"refusal,omitempty"`
	// Nodes are those that were chosen, then those that fit by score, then the others.
	Nodes []Node `json:"nodes"`
}

// Node is what was found out about one node.
type Node struct {
	Name string `json:"name"`
	Fits bool   `json:"fits"`
	// Score is the sum of all plugins' scores; nil when nothing was scored.
	Score *int64 `json:"score,omitempty"`
	// Devices are the names of those that the pod would get, or has.
	Devices []string `json:"devices,omitempty"`
	// Reason says what the pod would take and what that costs the node, or what is missing.
	Reason string `json:"reason,omitempty"`
}

// sort puts the nodes into their order.
func (e *Explanation) sort() {
	slices.SortFunc(e.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(e.place(a), e.place(b)), cmp.Compare(b.score(), a.score()), cmp.Compare(a.Name, b.Name))
	})
}

func (e *Explanation) place(n Node) int {
	switch {
	case slices.Contains(e.Chosen, n.Name):
		return 0
	case n.Fits:
		return 1
	}
	return 2
}

func (n Node) score() int64 {
	if n.Score == nil {
		return 0
	}
	return *n.Score
}
