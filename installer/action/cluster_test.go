package action

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// NodeOf returns the node of an object, and the object's label is valid and unique, however long the node's name is.
func TestObjectsOfNodesWithLongNames(t *testing.T) {
	labels := map[string]bool{}
	for _, name := range []string{"n", strings.Repeat("n", 63), strings.Repeat("n", 64) + ".example.com", strings.Repeat("n", 64) + ".example.org"} {
		node := &v1alpha1.GPUNode{}
		node.Name = name
		claim := Cluster{Namespace: "tessera-system"}.validationClaim(Validation{Node: node}, PartGPUs)
		if got := NodeOf(claim); got != name {
			t.Errorf("NodeOf: got %q, want %q", got, name)
		}
		label := claim.Labels[LabelNode]
		if problems := validation.IsValidLabelValue(label); len(problems) > 0 || labels[label] {
			t.Errorf("label of %s: got %q, same as another node: %t, %v", name, label, labels[label], problems)
		}
		labels[label] = true
	}
}
