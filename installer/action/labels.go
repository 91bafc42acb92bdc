package action

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// SetNodeLabels sets labels of a Node; one with an empty value is removed. Labels that are not named stay, and nothing is written when all are as stated.
func (c Cluster) SetNodeLabels(ctx context.Context, node *corev1.Node, labels map[string]string) error {
	changes := map[string]any{}
	for key, value := range labels {
		switch old, has := node.Labels[key]; {
		case value == "" && has:
			changes[key] = nil
		case value != "" && old != value:
			changes[key] = value
		}
	}
	if len(changes) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	if err != nil {
		return fmt.Errorf("encode labels of node %s: %w", node.Name, err)
	}
	if err := c.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, data), client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	return nil
}

// OperandLabels returns the labels of a Node by which its operands are placed.
func OperandLabels(l phase.Labels) map[string]string {
	return map[string]string{
		v1alpha1.LabelDriver: l.Driver, v1alpha1.LabelAgent: l.Agent, v1alpha1.LabelMaintenance: l.Maintenance,
		v1alpha1.LabelToolkit: labelFlag(l.Toolkit), v1alpha1.LabelReady: labelFlag(l.Ready),
	}
}

// ReadOperandLabels is the inverse of OperandLabels.
func ReadOperandLabels(node *corev1.Node) phase.Labels {
	l := node.Labels
	return phase.Labels{
		Driver: l[v1alpha1.LabelDriver], Agent: l[v1alpha1.LabelAgent], Maintenance: l[v1alpha1.LabelMaintenance],
		Toolkit: l[v1alpha1.LabelToolkit] == "true", Ready: l[v1alpha1.LabelReady] == "true",
	}
}

// labelFlag returns the value of a label that is "true" or absent.
func labelFlag(set bool) string {
	if set {
		return "true"
	}
	return ""
}

// AddReadinessTaint adds the readiness taint to a Node: pods that do not tolerate it are not scheduled there. Other taints stay. It fails with a conflict
// when the Node is not the API server's version, because taints are written as one list.
func (c Cluster) AddReadinessTaint(ctx context.Context, node *corev1.Node) error {
	if slices.ContainsFunc(node.Spec.Taints, isReadinessTaint) {
		return nil
	}
	taint := corev1.Taint{Key: v1alpha1.TaintNotReady, Effect: corev1.TaintEffectNoSchedule}
	return c.writeTaints(ctx, node, append(slices.Clone(node.Spec.Taints), taint))
}

// RemoveReadinessTaint is the inverse of AddReadinessTaint.
func (c Cluster) RemoveReadinessTaint(ctx context.Context, node *corev1.Node) error {
	if !slices.ContainsFunc(node.Spec.Taints, isReadinessTaint) {
		return nil
	}
	return c.writeTaints(ctx, node, slices.DeleteFunc(slices.Clone(node.Spec.Taints), isReadinessTaint))
}

func isReadinessTaint(taint corev1.Taint) bool { return taint.Key == v1alpha1.TaintNotReady }

func (c Cluster) writeTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return fmt.Errorf("encode taints of node %s: %w", node.Name, err)
	}
	if err := c.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, data), client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("write readiness taint of node %s: %w", node.Name, err)
	}
	return nil
}

// OwnsNodeLabel reports whether the installer was the last to write a label of a Node.
func OwnsNodeLabel(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == Manager && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+key+`"`)
	})
}
