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

// Label writes labels of a Node: those with a value are set, those without are removed. Others are left alone.
type Label struct {
	Node   *corev1.Node
	Labels map[string]string
}

// Do performs it; what stands already is not written.
func (a Label) Do(ctx context.Context, c Cluster) error {
	changes := map[string]any{}
	for key, value := range a.Labels {
		switch old, has := a.Node.Labels[key]; {
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
		return fmt.Errorf("encode labels of node %s: %w", a.Node.Name, err)
	}
	if err := c.Client.Patch(ctx, a.Node, client.RawPatch(types.MergePatchType, data), client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("label node %s: %w", a.Node.Name, err)
	}
	return nil
}

// Placing returns the labels by which operands come and go.
func Placing(l phase.Labels) map[string]string {
	return map[string]string{
		v1alpha1.LabelDriver: l.Driver, v1alpha1.LabelAgent: l.Agent, v1alpha1.LabelMaintenance: l.Maintenance,
		v1alpha1.LabelToolkit: yes(l.Toolkit), v1alpha1.LabelReady: yes(l.Ready),
	}
}

// Placed reads them from a Node.
func Placed(node *corev1.Node) phase.Labels {
	l := node.Labels
	return phase.Labels{
		Driver: l[v1alpha1.LabelDriver], Agent: l[v1alpha1.LabelAgent], Maintenance: l[v1alpha1.LabelMaintenance],
		Toolkit: l[v1alpha1.LabelToolkit] == "true", Ready: l[v1alpha1.LabelReady] == "true",
	}
}

func yes(is bool) string {
	if is {
		return "true"
	}
	return ""
}

// Readiness is whether a node carries the readiness taint.
type Readiness string

// What becomes of the readiness taint.
const (
	Closed Readiness = "Closed" // pods without a toleration stay off
	Open   Readiness = "Open"
)

// Gate writes or removes the readiness taint of a Node. Other taints are left alone.
type Gate struct {
	Node      *corev1.Node
	Readiness Readiness
}

// Do performs it. It fails with a conflict when the Node is not what the API server has: taints are written as one list.
func (a Gate) Do(ctx context.Context, c Cluster) error {
	is := func(taint corev1.Taint) bool { return taint.Key == v1alpha1.TaintNotReady }
	taints := slices.DeleteFunc(slices.Clone(a.Node.Spec.Taints), is)
	if a.Readiness == Closed {
		taints = append(taints, corev1.Taint{Key: v1alpha1.TaintNotReady, Effect: corev1.TaintEffectNoSchedule})
	}
	if slices.ContainsFunc(a.Node.Spec.Taints, is) == (a.Readiness == Closed) {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": a.Node.ResourceVersion}, "spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return fmt.Errorf("encode taints of node %s: %w", a.Node.Name, err)
	}
	if err := c.Client.Patch(ctx, a.Node, client.RawPatch(types.MergePatchType, data), client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("write readiness taint of node %s: %w", a.Node.Name, err)
	}
	return nil
}

// Wrote reports whether the installer wrote a label of a node, and nobody else since.
func Wrote(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == Manager && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+key+`"`)
	})
}
