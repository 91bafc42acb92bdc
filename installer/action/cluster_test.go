package action

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// What is made for a node is found again and the API server takes it, however long the node's name is.
func TestObjectsOfNodes(t *testing.T) {
	labels := map[string]bool{}
	for _, name := range []string{"n", strings.Repeat("n", 63), strings.Repeat("n", 64) + ".example.com", strings.Repeat("n", 64) + ".example.org"} {
		node := &v1alpha1.GPUNode{}
		node.Name = name
		claim := Validate{Node: node}.claim(Cluster{Namespace: "tessera-system"}, PartGPUs)
		if got := NodeOf(claim); got != name {
			t.Errorf("%s: it is for %q", name, got)
		}
		label := claim.Labels[LabelNode]
		if problems := validation.IsValidLabelValue(label); len(problems) > 0 || labels[label] {
			t.Errorf("%s: the label is %q, as for another node: %t, %v", name, label, labels[label], problems)
		}
		labels[label] = true
	}
}
