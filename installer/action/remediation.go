package action

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// maxHistory is how many ended remediations status.history keeps.
const maxHistory = 32

// WriteRemedyOrder writes one GPU's entry of spec.remediations, which the node's agent acts on. Entries of other GPUs stay; the list is sorted by GPU.
func (c Cluster) WriteRemedyOrder(ctx context.Context, node *v1alpha1.GPUNode, order v1alpha1.Remediation) error {
	old := node.DeepCopy()
	orders := ordersWithout(node.Spec.Remediations, order.GPU)
	at, _ := slices.BinarySearchFunc(orders, order.GPU, func(r v1alpha1.Remediation, gpu string) int { return strings.Compare(r.GPU, gpu) })
	node.Spec.Remediations = slices.Insert(orders, at, order)
	if equality.Semantic.DeepEqual(old.Spec.Remediations, node.Spec.Remediations) {
		return nil
	}
	return c.patchNodeSpec(ctx, old, node)
}

// ReleaseGPU adds record to the history, unless it is nil or the history has a record of its ID, and then removes the GPU from spec.remediations: the agent
// offers it again. It reports whether the record is new.
//
// The history is written first. After a crash between the two writes the action is repeated, finds the record by its ID and only removes the order.
func (c Cluster) ReleaseGPU(ctx context.Context, node *v1alpha1.GPUNode, gpu string, record *v1alpha1.RemediationRecord) (recorded bool, err error) {
	if record != nil && !hasRecord(node.Status.History, record.ID) {
		status := *node.Status.DeepCopy()
		status.History = slices.Insert(status.History, 0, *record.DeepCopy())
		status.History = status.History[:min(len(status.History), maxHistory)]
		if err := c.WriteNodeStatus(ctx, node, status); err != nil {
			return false, err
		}
		recorded = true
	}
	old := node.DeepCopy()
	node.Spec.Remediations = ordersWithout(node.Spec.Remediations, gpu)
	if len(old.Spec.Remediations) == len(node.Spec.Remediations) {
		return recorded, nil
	}
	return recorded, c.patchNodeSpec(ctx, old, node)
}

func ordersWithout(orders []v1alpha1.Remediation, gpu string) []v1alpha1.Remediation {
	return slices.DeleteFunc(slices.Clone(orders), func(r v1alpha1.Remediation) bool { return r.GPU == gpu })
}

func hasRecord(history []v1alpha1.RemediationRecord, id string) bool {
	return slices.ContainsFunc(history, func(r v1alpha1.RemediationRecord) bool { return r.ID == id })
}
