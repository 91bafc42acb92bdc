package explain

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The type of the explanation in JSON.
const (
	Kind       = "PodExplanation"
	APIVersion = "tessera.dev/v1alpha1"
)

// Explanation is what the scheduler would do with a pod now; for a bound pod, its node and devices.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Scheduler string `json:"scheduler"`
	// BoundNode is the node of a bound pod. Nodes then has only this node.
	BoundNode string `json:"boundNode,omitempty"`
	// Chosen are the nodes with the highest score. kube-scheduler picks one of them at random.
	Chosen []string `json:"chosen"`
	// Rejection is why PreFilter rejected the pod.
	Rejection string `json:"rejection,omitempty"`
	// Nodes are the chosen nodes, then the others that fit by score, then the rest.
	Nodes []Node `json:"nodes"`
}

// Node is the result for one node.
type Node struct {
	Name string `json:"name"`
	Fits bool   `json:"fits"`
	// Score is the weighted sum of all plugins' scores; nil when the node was not scored.
	Score *int64 `json:"score,omitempty"`
	// Devices are the names of the devices that the pod would get; for a bound pod, has.
	Devices []string `json:"devices,omitempty"`
	// Reason is what the pod would allocate and which capacity the node would lose, or what is missing.
	Reason string `json:"reason,omitempty"`
}

// sortNodes sorts the nodes as documented at Explanation.Nodes.
func (e *Explanation) sortNodes() {
	slices.SortFunc(e.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(e.group(a), e.group(b)), cmp.Compare(b.score(), a.score()), cmp.Compare(a.Name, b.Name))
	})
}

// group returns the position of the node's group in the order.
func (e *Explanation) group(n Node) int {
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
