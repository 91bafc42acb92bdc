// Package action performs what phase and rollout decided, and decides nothing. One type per action; each may be performed twice: the
// second time changes nothing. An error leaves what was done so far; performing the action again completes it.
package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Names that everything of the installer carries.
const (
	// Manager is the field manager of all writes.
	Manager = "tessera-installer"
	// AnnotationBarrier says for which boot, driver and agent a validation is, or for which mode an operation.
	AnnotationBarrier = "tessera.dev/barrier"
	// LabelNode names the node that an object is for, shortened to the length of a label; NodeOf returns the whole name.
	LabelNode = "tessera.dev/node"
)

// Cluster is what actions work on.
type Cluster struct {
	// Client reads from caches what the installer watches, and writes.
	Client client.Client
	// Live has no cache: for pods of users.
	Live client.Client
	// Namespace is the installer's own.
	Namespace string
}

// patchSpec writes the difference between old and node, which differ in the spec only. It fails with a conflict when old is not what the
// API server has.
func (c Cluster) patchSpec(ctx context.Context, old, node *v1alpha1.GPUNode) error {
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, node, patch, client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("write spec of GPUNode %s: %w", node.Name, err)
	}
	return nil
}

// WriteStatus writes the installer's part of a GPUNode's status: everything but what discovery and agent own. It fails with a conflict when the
// node is not what the API server has, and leaves in node what the API server has then.
func (c Cluster) WriteStatus(ctx context.Context, node *v1alpha1.GPUNode, status v1alpha1.GPUNodeStatus) error {
	status.Hardware, status.Agent = nil, nil
	data, err := partial(node, map[string]any{"name": node.Name, "resourceVersion": node.ResourceVersion}, status)
	if err != nil {
		return fmt.Errorf("encode status of GPUNode %s: %w", node.Name, err)
	}
	err = c.Client.Status().Patch(ctx, node, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(Manager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write status of GPUNode %s: %w", node.Name, err)
	}
	return nil
}

// partial returns the apply patch of an object of our API with this metadata and status.
func partial(object client.Object, metadata map[string]any, status any) ([]byte, error) {
	kind, err := kindOf(object)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	prune(fields)
	return json.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": metadata, "status": fields})
}

// kindOf returns the kind of an object of our API.
func kindOf(object client.Object) (string, error) {
	switch object.(type) {
	case *v1alpha1.GPUNode:
		return "GPUNode", nil
	case *v1alpha1.ClusterPolicy:
		return "ClusterPolicy", nil
	case *v1alpha1.NVIDIADriver:
		return "NVIDIADriver", nil
	}
	return "", fmt.Errorf("%T is no kind of %s", object, v1alpha1.APIVersion)
}

// prune removes what is null: a time that is not set.
func prune(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if field == nil {
				delete(v, key)
				continue
			}
			prune(field)
		}
	case []any:
		for _, element := range v {
			prune(element)
		}
	}
}

// WriteSummary writes the whole status of a ClusterPolicy or NVIDIADriver, which is the installer's alone.
func (c Cluster) WriteSummary(ctx context.Context, object client.Object, status any) error {
	data, err := partial(object, map[string]any{"name": object.GetName(), "uid": object.GetUID()}, status)
	if err != nil {
		return fmt.Errorf("encode status of %s: %w", object.GetName(), err)
	}
	err = c.Client.Status().Patch(ctx, object, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(Manager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write status of %s: %w", object.GetName(), err)
	}
	return nil
}

// nodeLabel is the name of a node as the value of a label, which may be no longer than 63 characters: of a longer name the end is a hash.
func nodeLabel(name string) string {
	if len(name) <= longestValue {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:8])
	return name[:longestValue-len(hash)-1] + "-" + hash
}

// NodeOf returns the node that an object of the installer is for; empty: for none in particular.
func NodeOf(object client.Object) string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "GPUNode" && object.GetLabels()[LabelNode] != "" {
			return owner.Name
		}
	}
	return ""
}

// owned returns the metadata of an object that ends with a GPUNode.
func (c Cluster) owned(node *v1alpha1.GPUNode, name, operand string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: c.Namespace, Name: name,
		Labels: map[string]string{render.LabelManagedBy: render.ManagedBy, render.LabelName: operand, LabelNode: nodeLabel(node.Name)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.APIVersion, Kind: "GPUNode", Name: node.Name, UID: node.UID,
		}},
	}
}
