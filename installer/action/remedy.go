package action

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// longestHistory is how many remediations that are over a GPUNode remembers.
const longestHistory = 32

// Direct tells the agent of a node what to do about one GPU.
type Direct struct {
	Node  *v1alpha1.GPUNode
	Order v1alpha1.Remedy
}

// Do performs it. Orders for other GPUs stay as they are.
func (a Direct) Do(ctx context.Context, c Cluster) error {
	old := a.Node.DeepCopy()
	orders := without(a.Node.Spec.Remedies, a.Order.GPU)
	at, _ := slices.BinarySearchFunc(orders, a.Order.GPU, func(r v1alpha1.Remedy, gpu string) int { return strings.Compare(r.GPU, gpu) })
	a.Node.Spec.Remedies = slices.Insert(orders, at, a.Order)
	if equality.Semantic.DeepEqual(old.Spec.Remedies, a.Node.Spec.Remedies) {
		return nil
	}
	return c.patchSpec(ctx, old, a.Node)
}

// Release ends what is done about one GPU: its agent offers it again.
type Release struct {
	Node *v1alpha1.GPUNode
	GPU  string
	// Record, when set, is what the history keeps of it.
	Record *v1alpha1.RemedyRecord
}

// Do performs it and reports whether the record is new. The history is written before the order goes, so that a crash in between is made good
// by doing it again: a record whose ID the history has is not written twice.
func (a Release) Do(ctx context.Context, c Cluster) (recorded bool, err error) {
	if a.Record != nil && !remembers(a.Node.Status.History, a.Record.ID) {
		status := *a.Node.Status.DeepCopy()
		status.History = slices.Insert(status.History, 0, *a.Record.DeepCopy())
		status.History = status.History[:min(len(status.History), longestHistory)]
		if err := c.WriteStatus(ctx, a.Node, status); err != nil {
			return false, err
		}
		recorded = true
	}
	old := a.Node.DeepCopy()
	a.Node.Spec.Remedies = without(a.Node.Spec.Remedies, a.GPU)
	if len(old.Spec.Remedies) == len(a.Node.Spec.Remedies) {
		return recorded, nil
	}
	return recorded, c.patchSpec(ctx, old, a.Node)
}

// without returns the orders but for that of one GPU.
func without(orders []v1alpha1.Remedy, gpu string) []v1alpha1.Remedy {
	return slices.DeleteFunc(slices.Clone(orders), func(r v1alpha1.Remedy) bool { return r.GPU == gpu })
}

// remembers reports whether a history has a record of an attempt.
func remembers(history []v1alpha1.RemedyRecord, id string) bool {
	return slices.ContainsFunc(history, func(r v1alpha1.RemedyRecord) bool { return r.ID == id })
}
